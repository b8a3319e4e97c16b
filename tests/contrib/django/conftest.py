"""The shop on SQLite in memory, for tests in this process."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("django")

import django
from django.apps import apps
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from fastq.contrib.django import backend

BACKEND = "fastq.contrib.django.FastqBackend"


def _set_up() -> None:
    zone = os.environ.get("TZ")
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.contrib.django.shop.settings"
    django.setup()
    # Django sets the time zone of the process, which is that of other tests, too.
    os.environ.pop("TZ", None)
    if zone is not None:
        os.environ["TZ"] = zone
    time.tzset()
    # Django's own migrations, one after the other, take five times as long as its tables.
    theirs = {app.label: None for app in apps.get_app_configs() if app.name.startswith("django.")}
    with override_settings(MIGRATION_MODULES=theirs):
        for alias in connections:
            call_command("migrate", run_syncdb=True, verbosity=0, database=alias)


_set_up()


@pytest.fixture
def tasks_are(url: str) -> Iterator[Callable[..., None]]:
    """Return a function that sets TASKS: keyword arguments are the options of the default backend."""
    backend._client.cache_clear()  # a client publishes a queue once, and the Redis has been emptied
    with ExitStack() as stack:

        def change(path: str = BACKEND, queues: tuple[str, ...] = ("default", "mail"), **options: Any) -> None:
            options = {"redis": url, **options}
            setting = {"default": {"BACKEND": path, "QUEUES": list(queues), "OPTIONS": options}}
            stack.enter_context(override_settings(TASKS=setting))

        change()
        yield change
