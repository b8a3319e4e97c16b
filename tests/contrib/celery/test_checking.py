"""What ``fastq celery check`` finds in a project, and that its tables say what the code does."""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

import fastq.contrib.celery
from fastq.contrib.celery import AsyncResult, Celery, Signature, Task
from fastq.contrib.celery import uses as tables
from fastq.contrib.celery.checking import Found, files_of, uses_in
from fastq.contrib.celery.options import _ALWAYS_SO, CALL_OPTIONS, Settings
from fastq.contrib.celery.task import Request
from fastq.contrib.celery.uses import Level, Use
from tests.cli.commands import Fastq, checked_json

APP = """\
from celery import Celery
from celery.schedules import crontab

app = Celery("shop", broker="redis://", backend="rpc://")
app.autodiscover_tasks(["shop"])
app.conf.beat_schedule = {}
"""
TASKS = """\
import celery
from celery import chain, shared_task
from celery.result import AsyncResult
from celery.signals import worker_ready
from shop.main import app

class Other:
    def show(self):
        return self.retry, self.name

@app.task(bind=True, max_retries=3, rate_limit="1/m")
def fetch(task, url):
    task.update_state(state="X")
    print(task.request.id, task.request.hostname)
    raise task.retry(exc=None, countdown=3, throw=False)

@shared_task
def add(left, right): ...

@shared_task(soft_time_limit=5)
async def wait(): ...

def use(options):
    result = add.delay(1, 2)
    result.get(timeout=1)
    result.collect()
    add.apply_async((1,), priority=9, link=add.s(2).set(queue="q").on_error(None))
    AsyncResult("x").forget()
    add.apply_async(**options)
    fetch.s("u").delay()
    chain(add.s(1), add.s(2)).apply_async()
    add.retry([1, 2], exc=None)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {"shop/main.py": APP, "shop/tasks.py": TASKS, ".venv/lib.py": TASKS}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def by_level(found: list[Found], level: Level, path: str) -> list[tuple[int, str]]:
    return [(each.line, each.what) for each in found if each.level is level and each.path == path]


def test_each_use_is_found_with_its_level(project: Path) -> None:
    found = uses_in(files_of("shop.main:app", project), project)
    assert {each.path for each in found} == {"shop/main.py", "shop/tasks.py"}
    assert by_level(found, Level.WORKS, "shop/main.py") == [
        (1, "from celery import Celery"),
        (4, "Celery(broker=…)"),
    ]
    assert by_level(found, Level.DIFFERS, "shop/main.py") == [(5, "app.autodiscover_tasks")]
    assert by_level(found, Level.UNSUPPORTED, "shop/main.py") == [
        (2, "from celery.schedules import crontab"),
        (4, "Celery(backend=…)"),
        (6, "app.conf"),
        (6, "app.conf.beat_schedule"),
    ]


def test_each_use_in_tasks_is_found_with_its_level(project: Path) -> None:
    found = uses_in(files_of("shop", project), project)
    assert by_level(found, Level.WORKS, "shop/tasks.py") == [
        (2, "from celery import shared_task"),
        (3, "from celery.result import AsyncResult"),
        (11, "@app.task"),
        (11, "@app.task(bind=…)"),
        (11, "@app.task(max_retries=…)"),
        (11, "app.task"),
        (14, "task.request"),
        (14, "task.request.id"),
        (15, "task.retry"),
        (15, "task.retry(countdown=…)"),
        (15, "task.retry(exc=…)"),
        (17, "@shared_task"),
        (20, "@shared_task"),
        (24, "add.delay"),
        (27, "add.apply_async"),
        (27, "add.s"),
        (27, "set(queue=…)"),
        (27, "signature.set"),
        (29, "add.apply_async"),
        (30, "fetch.s"),
        (30, "signature.delay"),
        (31, "add.s"),
        (32, "add.retry"),
        (32, "add.retry(exc=…)"),
    ]
    assert by_level(found, Level.DIFFERS, "shop/tasks.py") == [
        (11, "@app.task(rate_limit=…)"),
        (20, "@shared_task(soft_time_limit=…)"),
        (25, "AsyncResult.get"),
        (27, "apply_async(link=…)"),
        (29, "apply_async(**options)"),
    ]
    assert by_level(found, Level.UNSUPPORTED, "shop/tasks.py") == [
        (1, "import celery"),
        (2, "from celery import chain"),
        (4, "from celery.signals import worker_ready"),
        (13, "task.update_state"),
        (14, "task.request.hostname"),
        (15, "task.retry(throw=…)"),
        (20, "@shared_task async def"),
        (26, "AsyncResult.collect"),
        (27, "apply_async(priority=…)"),
        (28, "AsyncResult.forget"),
        (32, "add.retry(args, …)"),
    ]


def test_the_command_lists_them_and_fails_if_something_is_unsupported(project: Path) -> None:
    fastq = Fastq("redis://nowhere")
    listed = fastq.run("celery", "check", "shop")
    lines = listed.stdout.splitlines()
    assert listed.exit_code == 1
    assert lines[0] == "shop/main.py:1: works        from celery import Celery"
    assert lines[-1] == "26 works, 6 differs, 15 unsupported"
    found = checked_json(fastq.run("celery", "check", "shop", "--json").stdout, "celery check")
    assert [found[level.value] for level in Level] == [26, 6, 15]
    assert len(found["uses"]) == 47
    (project / "fine.py").write_text("from celery import shared_task")
    assert fastq.run("celery", "check", "fine.py").exit_code == 0
    (project / "bad.py").write_text("def")
    assert "invalid syntax" in fastq.failure("celery", "check", "bad.py")
    assert "'nothing' is no directory, file or package" in fastq.failure("celery", "check", "nothing")


SETTINGS = """\
from celery import Celery

CELERY_BROKER_URL = "redis://"
CELERY_TASK_ALWAYS_EAGER = True
INSTALLED_APPS = ["shop", "django_celery_beat"]
INSTALLED_APPS += ["django_celery_results"]

def make():
    made = Celery("shop")
    made.conf.update({"task_routes": {}}, timezone="UTC")
    made.conf.task_time_limit = 3
    return made

class Local:
    CELERYBEAT_SCHEDULE = {}
"""
PACKAGES = """\
import kombu
from billiard.exceptions import SoftTimeLimitExceeded
from celery_once import QueueOnce
from django_celery_beat.models import PeriodicTask
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.integrations.django import DjangoIntegration
"""


def unsupported(directory: Path, **texts: str) -> list[str]:
    for name, text in texts.items():
        (directory / f"{name}.py").write_text(text)
    found = uses_in([directory / f"{name}.py" for name in texts], directory)
    return [each.what for each in found if each.level is Level.UNSUPPORTED]


def test_settings_and_the_packages_around_celery_are_found(tmp_path: Path) -> None:
    assert unsupported(tmp_path, settings=SETTINGS) == [
        "CELERY_BROKER_URL",
        "CELERY_TASK_ALWAYS_EAGER",
        "INSTALLED_APPS: django_celery_beat",
        "INSTALLED_APPS: django_celery_results",
        "app.conf: task_routes",
        "app.conf: timezone",
        "made.conf",
        "made.conf.update",
        "made.conf",
        "made.conf.task_time_limit",
        "CELERYBEAT_SCHEDULE",
    ]
    assert unsupported(tmp_path, imports=PACKAGES) == [
        "import kombu",
        "from billiard.exceptions import SoftTimeLimitExceeded",
        "from celery_once import QueueOnce",
        "from django_celery_beat.models import PeriodicTask",
        "from sentry_sdk.integrations.celery import CeleryIntegration",
    ]


OTHERS = """\
from flask import Flask
from tasks import grow as other, grow

app = Flask()
app.route("/")

def view():
    task = grow.delay(1)
    return task.parent

def export(job, grow):
    task = job.child
    task.chunks = grow.chunks
    return task.parent, task.info

def rebound():
    found = grow.delay(1)
    found = found.get()
    return found.children

class Plant:
    grow = 3

    def name(self):
        return self.grow.chunks, grow.chunks

other.chunks([1], 2)
mine = other
mine.starmap([])
"""


def test_a_name_is_what_its_scope_makes_it(tmp_path: Path) -> None:
    tasks = "from celery import Celery, shared_task\napp = Celery()\n@shared_task\ndef grow(n): ..."
    assert unsupported(tmp_path, tasks=tasks, others=OTHERS) == [
        "AsyncResult.parent",
        "grow.chunks",
        "other.chunks",
        "mine.starmap",
    ]


def supported(uses: Mapping[str, Use]) -> set[str]:
    return {name for name, use in uses.items() if use.level is not Level.UNSUPPORTED}


def test_the_tables_say_what_the_code_takes() -> None:
    assert supported(tables.OF_DECORATOR) == {"name", *(each.name for each in fields(Settings)), *_ALWAYS_SO}
    assert supported(tables.OF_CALL) == {"args", "kwargs", "link", "serializer", *CALL_OPTIONS}
    retry = inspect.signature(Task.retry).parameters
    assert supported(tables.OF_RETRY) == retry.keys() - {"self", "arguments", "others"}
    init = inspect.signature(Celery.__init__).parameters
    assert supported(tables.OF_APP_ARGUMENTS) == init.keys() - {"self", "others"}


def test_the_tables_say_which_attributes_there_are() -> None:
    app = Celery()

    @app.task
    def task() -> None: ...

    result, signature = AsyncResult("x", app), Signature(task, (), {})
    for thing, uses in (
        (app, tables.OF_APP),
        (task, tables.OF_TASK),
        (signature, tables.OF_SIGNATURE),
        (Request(None), tables.OF_REQUEST),
    ):
        assert {name for name in uses if hasattr(thing, name)} == supported(uses)
    assert {name for name in tables.OF_RESULT if hasattr(type(result), name) or name in vars(result)} == supported(
        tables.OF_RESULT
    )
    names = {name for uses in tables.OF_IMPORT.values() for name in supported(uses)} - {"TimeoutError"}
    assert names <= set(fastq.contrib.celery.__all__)
