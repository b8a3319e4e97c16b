"""The app of a Django project: the tasks of all installed apps, with fresh database connections around each."""

from collections.abc import Iterator
from typing import Any

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import autodiscover_modules, import_string

from fastq.app.app import App
from fastq.contrib.connections import FreshConnections
from fastq.contrib.django.backend import KNOWN_TASKS, FastqBackend
from fastq.contrib.django.framework import task_backends
from fastq.contrib.django.handlers import handler_of
from fastq.mux import ServeMux


def worker_app() -> App:
    """Set up Django, import the ``tasks`` modules of all installed apps, and return an app that serves their tasks.

    It serves Django's tasks of a ``FastqBackend``, typed tasks of an ``App``, and the handlers of a ``ServeMux``. All
    database connections are closed before it returns, so that no two children share one.
    """
    django.setup()
    autodiscover_modules("tasks")
    app = App(redis_of(fastq_backends()))
    app.around(FreshConnections)
    for mux in _muxes():
        app.include(mux)
    for path, task in KNOWN_TASKS.items():
        if isinstance(task.get_backend(), FastqBackend):
            app.handle(f"{path}\0", handler_of(task))
    if not app.patterns():
        raise ImproperlyConfigured("no app of INSTALLED_APPS has a module tasks with tasks of fastq")
    app.child_stop(connections.close_all)
    connections.close_all()
    return app


def fastq_backends() -> list[FastqBackend]:
    """Return the backends of TASKS that are fastq's."""
    found = [task_backends[alias] for alias in task_backends.settings]
    return [backend for backend in found if isinstance(backend, FastqBackend)]


def redis_of(backends: list[FastqBackend]) -> str | None:
    """Return the Redis URL that all backends share; None if there is none, so that the environment decides."""
    urls = {backend.redis for backend in backends}
    return urls.pop() if len(urls) == 1 else None


def _muxes() -> Iterator[ServeMux[Any]]:
    """Yield each mux and app of the ``tasks`` modules that no other mux includes."""
    seen: dict[int, ServeMux[Any]] = {}
    for config in apps.get_app_configs():
        try:
            module = import_string(f"{config.name}.tasks")
        except ImportError:  # there is no such module: autodiscover_modules raises the errors inside one
            continue
        for value in vars(module).values():
            if isinstance(value, ServeMux) and not value._is_included and id(value) not in seen:
                seen[id(value)] = value
    yield from seen.values()
