import os

from django.db import connection, transaction

from fastq.app.app import App
from fastq.contrib.django import task
from tests.contrib.django.shop.models import Order

Order.objects.count()  # a query at the import, as of choices that are read from the database

app = App()


@task(retention=3600, max_retry=10_000)
def confirm(order_id: int) -> dict[str, int]:
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=order_id)
        assert order.item == f"item {order_id}", (order.item, order_id)
        order.confirmed += 1
        order.save()
    return {"order": order.pk, "child": os.getpid(), "backend": backend_of_connection()}


@task(retention=3600, max_retry=10_000)
async def aconfirm(order_id: int) -> int:
    order = await Order.objects.aget(pk=order_id)
    assert order.item == f"item {order_id}", (order.item, order_id)
    order.confirmed += 1
    await order.asave()
    return order_id


@app.task("orders.typed", retention=3600, max_retry=10_000)
def typed(order_id: int) -> int:
    return Order.objects.filter(pk=order_id).count()


def backend_of_connection() -> int:
    """Return the process of PostgreSQL at the other end."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        found: tuple[int] = cursor.fetchone()
    return found[0]


def soon(retried: int, error: BaseException, task: object) -> float:
    return 0.2
