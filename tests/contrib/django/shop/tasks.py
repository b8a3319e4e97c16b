import os
import signal

from django.db import connection, transaction
from django.db.models import F

from fastq.app.app import App
from fastq.contrib.django import once, task
from fastq.running import current_task
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


@task(retention=3600, max_retry=10_000)
def charge(order_id: int) -> str:
    receipt = charge_once(order_id)
    if current_task().retried == 0:
        os.kill(os.getpid(), signal.SIGKILL)  # after the commit, and before anybody knows
    return receipt


@once
def charge_once(order_id: int) -> str:
    Order.objects.filter(pk=order_id).update(confirmed=F("confirmed") + 1)
    return f"receipt {order_id} of child {os.getpid()}"


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
