import os
from typing import Any

import django
from django.db import connection

from fastq.contrib.celery import shared_task
from tests.contrib.django.shop.models import Order

Order.objects.count()  # a query at the import, whose connection no child may have


@shared_task(name="confirm")
def confirm(order_id: int) -> list[Any]:
    Order.objects.filter(pk=order_id).update(confirmed=1)
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return [django.__version__, os.getpid(), cursor.fetchone()[0]]
