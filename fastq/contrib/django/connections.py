"""Database connections around a task."""

from asgiref.sync import sync_to_async
from django.db import close_old_connections

__all__ = ["FreshConnections"]


class FreshConnections:
    """A context manager around a task: database connections that are broken or too old are closed before and after.

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
