from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=50)
    confirmed = models.IntegerField(default=0)
