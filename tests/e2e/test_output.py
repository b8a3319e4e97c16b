"""What an app prints, where stdout is no terminal: it is there line by line, and outlives a child that is killed."""

import pytest

from fastq import Client
from tests.e2e.harness import Workers

APP = """
import os
import signal
from fastq import ServeMux, Task

print("printed at the import")
mux = ServeMux()

@mux.child_start
def start():
    print("printed by child_start")

@mux.handler("say")
def say(task):
    print("printed by", task.payload.decode())

@mux.handler("say beside others")
async def say_beside(task):
    print("printed by", task.payload.decode())

@mux.handler("die")
def die(task):
    print("last words")
    os.kill(os.getpid(), signal.SIGKILL)

def aggregate(group, tasks):
    print("printed by the aggregator")
    return Task("say", b"a task of a group")

def judge(task, error):
    print("printed by a hook about", type(error).__name__)
"""


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
@pytest.mark.parametrize("threads", ["1", "4"])
def test_each_line_is_written_at_once_and_outlives_a_killed_child(
    workers: Workers, client: Client, start_method: str, threads: str
) -> None:
    (workers.directory / "printer.py").write_text(APP)
    flags = "--concurrency", "1", "--threads", threads, "--start-method", start_method
    groups = "--group-aggregator", "printer:aggregate", "--group-grace-period", "1"
    hooks = "--error-handler", "printer:judge"
    # By Python's rules an empty value is none: what it does for stdout must not come from outside.
    worker = workers.start(*flags, *groups, *hooks, app="printer:mux", env={"PYTHONUNBUFFERED": ""})
    for text in ("printed at the import", "printed by child_start"):
        worker.wait_for(text)
    client.enqueue("say", b"a handler")
    client.enqueue("say beside others", b"a coroutine")
    client.enqueue("say", b"one of a group", group="g")
    for text in ("a handler", "a coroutine", "the aggregator", "a task of a group"):
        worker.wait_for(f"printed by {text}")
    client.enqueue("die", max_retry=0)
    worker.wait_for("last words")
    worker.wait_for("printed by a hook about WorkerCrashedError")
    assert worker.stop() == 0
    assert worker.text.count("last words") == 1
