from django.db import models


class Order(models.Model):
    item: "models.CharField[str, str]" = models.CharField(max_length=50)
    confirmed: "models.IntegerField[int, int]" = models.IntegerField(default=0)
