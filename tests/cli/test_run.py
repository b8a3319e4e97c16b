"""The command ``fastq run``: one task in the foreground, its result, its traceback, its exit code."""

from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import pytest
from redis import Redis

from tests.cli.commands import NOWHERE, run_alone
from tests.e2e.harness import ROOT

APP = """
from collections.abc import AsyncIterator
import asyncio

from fastq import App, Context, RunningTask, ServeMux, Snooze

app = App()
inner = App()
alone = App()
mux = ServeMux()


@app.lifespan
async def env() -> AsyncIterator[object]:
    print("begins")
    yield asyncio.get_running_loop()
    print("ends")


@app.task("media.resize")
def resize(id: int, width: int = 640) -> dict[str, int]:
    return {"id": id, "width": width}


@inner.task("inner")
async def in_loop(ctx: Context[object]) -> bool:
    ctx.write_result(b"meanwhile")
    return ctx.env is asyncio.get_running_loop()


@app.task("fails")
def fails() -> None:
    raise ValueError("no picture")


@app.task("enqueues")
def enqueues() -> str:
    return resize.enqueue(7).queue


@app.task("nothing")
def nothing() -> None: ...


@app.task("snoozes")
def snoozes() -> None:
    raise Snooze(after=5)


@alone.task("alone")
def alone_task(ctx: Context[int]) -> None: ...


@mux.handler("raw:")
def raw(task: RunningTask) -> bytes:
    return task.payload


app.include(inner)
number = 5
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(APP)
    (tmp_path / "broken.py").write_text("import json\njson.loads('{')\n")
    return tmp_path


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(directory: Path, *words: str) -> Done:
    env = {"PYTHONPATH": str(ROOT), "PATH": "", "FASTQ_REDIS_URL": NOWHERE}
    with TemporaryFile() as stdout:
        code, stderr = run_alone(words, env, directory, stdout)
        stdout.seek(0)
        return Done(code, stdout.read().decode(), stderr)


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["jobs:resize", '{"id": 7}'], 'begins\n{"id":7,"width":640}\nends\n'),
        (["jobs:app", "--type", "media.resize", '{"id": 7}'], 'begins\n{"id":7,"width":640}\nends\n'),
        (["jobs:in_loop"], "begins\nmeanwhile\ntrue\nends\n"),
        (["jobs:nothing", "{}"], "begins\nends\n"),
        (["jobs:mux", "--type", "raw:x", "abc"], "abc\n"),
    ],
)
def test_a_task_runs_and_its_result_is_printed(directory: Path, words: list[str], out: str) -> None:
    done = run(directory, "run", *words)
    # What the lifespan says stands around what the task does; the result comes last.
    assert (sorted(done.stdout.splitlines()), done.stderr, done.returncode) == (sorted(out.splitlines()), "", 0)


def test_it_enqueues_where_it_is_told(directory: Path, url: str, db: Redis) -> None:
    assert run(directory, "run", "--redis", url, "jobs:enqueues").returncode == 0
    assert run(directory, "--redis", url, "run", "jobs:enqueues").returncode == 0
    assert db.llen("asynq:{default}:pending") == 2


def test_an_error_is_shown_with_the_user_s_lines(directory: Path) -> None:
    done = run(directory, "run", "jobs:fails")
    assert (done.stdout, done.returncode) == ("begins\nends\n", 1)
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: no picture"
    assert [line for line in lines if line.startswith("  File")] == [lines[1]]
    assert 'jobs.py", line ' in lines[1]


@pytest.mark.parametrize("words", [("run", "broken:app"), ("schema", "export", "broken:app")])
def test_an_import_that_fails_is_shown_with_the_user_s_lines(directory: Path, words: tuple[str, ...]) -> None:
    done = run(directory, *words)
    assert done.returncode == 1
    first, _, place, code, error = done.stderr.splitlines()
    assert first == "fastq: the import of broken:app failed:"
    assert (place.rpartition("/")[2], code.strip()) == ('broken.py", line 2, in <module>', "json.loads('{')")
    assert error.startswith("json.decoder.JSONDecodeError: ")


def test_an_argument_that_the_task_does_not_have_is_named(directory: Path) -> None:
    done = run(directory, "run", "jobs:resize", '{"id": 7, "quality": 90}')
    assert (done.stderr, done.returncode) == ("fastq: media.resize ignores 'quality'; there are id, width\n", 0)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["jobs:resize", '{"id": "x"}'], 1, "fastq: media.resize: Expected int, got str - at $.id"),
        (
            ["jobs:resize", '{"id": 7, "widht": 9}'],
            1,
            "media.resize: it has no argument 'widht'; did you mean 'width'?",
        ),
        (["jobs:snoozes"], 1, "fastq: snoozes is snoozed: a worker would run it again in 5 s, and count no attempt"),
        (["jobs:app", "-t", "zzz"], 1, "handler not found for task 'zzz'; there are enqueues, fails, inner, "),
        (
            ["jobs:app", "-t", "media.resiz"],
            1,
            "handler not found for task 'media.resiz'; did you mean 'media.resize'?",
        ),
        (
            ["jobs:app"],
            2,
            "is an app: choose a task with --type, of enqueues, fails, inner, media.resize, nothing, snoozes",
        ),
        (["jobs:app", "fails", "{}"], 2, "unexpected argument '{}'; a task of an app is chosen by --type fails"),
        (["jobs:number"], 2, "must be a task function, or with --type a fastq.App or ServeMux, not 5"),
        (["jobs:alone_task"], 2, "'jobs:alone_task': task 'alone' takes a Context with env <class 'int'>, but no"),
        (["jobs:resiz"], 2, "did you mean 'resize'?"),
        (["jobs"], 2, "'jobs' is not of the form module:attr"),
        (["jobs:resize", "--redis", "http://x"], 2, "scheme 'http' is none of redis"),
    ],
)
def test_what_cannot_run_is_said_in_one_line(directory: Path, words: list[str], code: int, text: str) -> None:
    done = run(directory, "run", *words)
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert text in line
