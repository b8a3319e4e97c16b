"""Django around a task: sets up the project and keeps database connections fresh; needs no tasks framework."""

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import close_old_connections, connections


def set_up() -> list[str]:
    """Set up Django, and return the names of the installed apps."""
    django.setup()
    return [config.name for config in apps.get_app_configs()]


def close_all() -> None:
    """Close the database connections of this thread, except during a transaction: two processes must not share one."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


class FreshConnections:
    """A context manager around a task: before and after it, database connections that are broken or too old are closed.

    A connection is too old after ``CONN_MAX_AGE``. Around a coroutine they are closed in the thread in which its
    queries run.
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
