"""The app of a project, and what surrounds its tasks."""

from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from fastq.contrib.django.discovery import fastq_backends, redis_of, worker_app
from fastq.testing import drain
from tests.contrib.django import jobs
from tests.contrib.django.shop import tasks


@pytest.mark.usefixtures("tasks_are")
def test_the_app_has_the_tasks_of_all_apps(url: str) -> None:
    app = worker_app()  # once in a process: it includes the shop's app
    patterns = {pattern.removesuffix("\0"): is_async for pattern, is_async in app.patterns().items()}
    assert patterns["orders.typed"] is False
    assert patterns[tasks.confirm.module_path] is False
    assert patterns[tasks.aconfirm.module_path] is True
    assert patterns[jobs.add.module_path] is False  # of no module tasks, but it was imported
    assert app.url == url
    results: list[Any] = [jobs.add.enqueue(1), jobs.aadd.enqueue(1)]
    drain(app, url)
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [2, 2]


def test_an_error_in_a_module_of_tasks_is_not_hidden(modules: Path) -> None:
    (modules / "broken_shop").mkdir()
    (modules / "broken_shop" / "__init__.py").write_text("")
    (modules / "broken_shop" / "tasks.py").write_text("import no_such_module")
    with override_settings(INSTALLED_APPS=["broken_shop"]), pytest.raises(ImportError, match="no_such_module"):
        worker_app()


def test_backends_of_one_url_have_it() -> None:
    backend = "fastq.contrib.django.backend.FastqBackend"
    one, two = ({"BACKEND": backend, "OPTIONS": {"redis": f"redis://host/{db}"}} for db in (1, 2))
    for setting, url in (
        ({"default": one, "same": one}, "redis://host/1"),
        ({"default": one, "two": two}, None),
        ({"default": {"BACKEND": backend}}, None),
    ):
        with override_settings(TASKS=setting):
            assert redis_of(fastq_backends()) == url
