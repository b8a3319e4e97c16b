"""Set up a Django project, and keep its database connections fresh around tasks; needs no ``django.tasks``."""

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import close_old_connections, connections


def set_up() -> list[str]:
    """Set up Django, and return the names of the installed apps."""
    django.setup()
    return [config.name for config in apps.get_app_configs()]


def close_all() -> None:
    """Close this thread's database connections that are not in a transaction: two processes must not share one."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


class FreshConnections:
    """A context manager that closes broken and too old database connections before and after a task.

    A connection is too old after ``CONN_MAX_AGE``. For a coroutine, the connections are closed in the thread that runs
    its queries.
    """

    def __init__(self, task: object) -> None:
        pass

    def __enter__(self) -> None:
        close_old_connections()

    def __exit__(self, *error: object) -> None:
        close_old_connections()

    async def __aenter__(self) -> None:
        await sync_to_async(close_old_connections)()

    async def __aexit__(self, *error: object) -> None:
        await sync_to_async(close_old_connections)()
