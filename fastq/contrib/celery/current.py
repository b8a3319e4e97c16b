"""The current app: the ``Celery`` that was made last, as in Celery."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fastq.client import Client
from fastq.task import Task


class Sender(Protocol):
    """The methods of a ``Celery`` that tasks and results call."""

    @property
    def client(self) -> Client:
        """Return the client that enqueues."""

    def send_task(
        self, name: str, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Send a task by its name."""

    def message(
        self, name: str, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Task:
        """Return the fastq task that ``send_task`` sends."""


_current: list[Sender] = []


def set_current_app(app: Sender) -> None:
    """Set the current app."""
    _current[:] = [app]


def latest_app() -> Sender | None:
    """Return the app that was made last, None if there is no app yet."""
    return _current[0] if _current else None


def current_app() -> Sender:
    """Return the current app; ``RuntimeError`` if no ``Celery`` has been made."""
    app = latest_app()
    if app is None:
        raise RuntimeError("there is no Celery app yet: import the module that makes it, before tasks are sent")
    return app
