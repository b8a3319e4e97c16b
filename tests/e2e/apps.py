"""The app of the tests: what its handlers do is in a task's type, how in its payload.

Handlers tell how far they got on the list EVENTS, a text an entry: what happened, the task's id, the process' id.
"""

import asyncio
import ctypes
import functools
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import fastq
from fastq import (
    RateLimited,
    RevokeTask,
    ServeMux,
    SkipRetry,
    Task,
    TaskCanceled,
    TaskTimeout,
    current_task,
)
from fastq.mux import Handler
from fastq.running import GroupedTask, RunningTask
from tests.e2e.asking import ask

EVENTS = "e2e:events"
LONG_S = 600
"""What waits or hangs does so for longer than any test waits for its end."""
HOARD: list[bytearray] = []
mux = ServeMux()
layered = ServeMux()
narrow = ServeMux()


def tell(what: str, task: RunningTask) -> None:
    ask("RPUSH", EVENTS, f"{what} {task.id} {os.getpid()}")


def gate(name: str) -> str:
    """Return the list that holds a token for each handler that may pass."""
    return f"e2e:gate:{name}"


@mux.handler("ok")
def ok(task: RunningTask) -> None:
    return None


@mux.handler("brief")
def take_a_moment(task: RunningTask) -> None:
    """Keep a worker busy with few tasks."""
    time.sleep(0.001)


@mux.handler("told")
def only_tell(task: RunningTask) -> None:
    tell("ran", task)


@mux.handler("asks")
def ask_for_more(task: RunningTask) -> None:
    """Tell that it ran, but the first time of each payload that it was refused."""
    if ask("INCR", f"e2e:asked:{task.payload.decode()}") == 1:
        tell("refused", task)
        raise RateLimited(after=1)
    tell("ran", task)


@mux.handler("echo")
def echo(task: RunningTask) -> Any:
    return task.json()


@mux.handler("bytes")
def give_bytes(task: RunningTask) -> bytes:
    return task.payload[::-1]


@mux.handler("facts")
def facts(task: RunningTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "queue": task.queue,
        "type": task.type,
        "headers": dict(task.headers),
        "retried": task.retried,
        "max_retry": task.max_retry,
        "is_current": current_task() is task,
        "allowed_s": task.deadline and round((task.deadline - task.started_at).total_seconds()),
    }


@mux.handler("write")
def write(task: RunningTask) -> None:
    for part in task.json():
        task.write_result(part)
    tell("written", task)
    ask("BLPOP", gate(task.id), LONG_S)


@mux.handler("set")
def not_json(task: RunningTask) -> set[int]:
    return {1}


@mux.handler("fail")
def fail(task: RunningTask) -> None:
    raise ValueError(task.json())


@mux.handler("print")
def printing(task: RunningTask) -> None:
    """Print more than a pipe holds."""
    for _ in range(200):
        sys.stderr.write("x" * 1023 + "\n")


@mux.handler("fail-times")
def fail_times(task: RunningTask) -> str:
    if task.retried < int(task.headers["times"]):
        raise ValueError(f"attempt {task.retried}")
    return "at last"


@mux.handler("stumble")
def stumble(task: RunningTask) -> None:
    """Tell of each attempt, of which the first ones fail."""
    tell("tried", task)
    if task.retried < task.json():
        raise ValueError(f"attempt {task.retried}")


class NotCountedError(Exception):
    """An error that does not count as a failure."""


@mux.handler("not-counted")
def not_counted(task: RunningTask) -> None:
    raise NotCountedError("later")


@mux.handler("skip")
def skip(task: RunningTask) -> None:
    raise SkipRetry("no use")


@mux.handler("skip-from")
def skip_from(task: RunningTask) -> None:
    raise ValueError("bad data") from SkipRetry("no use")


@mux.handler("revoke")
def revoke(task: RunningTask) -> None:
    raise RevokeTask("not wanted any more")


@mux.handler("exit")
def exit_python(task: RunningTask) -> None:
    raise SystemExit(3)


@mux.handler("crash")
def crash(task: RunningTask) -> None:
    tell("started", task)
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(LONG_S)


@mux.handler("wait")
def wait(task: RunningTask) -> None:
    """Run until the gate lets it pass."""
    tell("started", task)
    ask("BLPOP", gate(task.headers.get("gate", "g")), LONG_S)
    tell("done", task)


@mux.handler("which")
def which(task: RunningTask) -> None:
    """Tell the payload, then run until the gate lets it pass."""
    tell(task.payload.decode(), task)
    ask("BLPOP", gate("g"), LONG_S)


@functools.cache
def semaphore(scope: str, tokens: int) -> "fastq.Semaphore":
    return fastq.Semaphore(scope, tokens)


@mux.handler("limited")
def hold_token(task: RunningTask) -> None:
    """Wait at a gate with a token of a semaphore."""
    with semaphore(task.headers["scope"], int(task.headers["tokens"])):
        wait(task)


@mux.handler("then-fail")
def wait_and_fail(task: RunningTask) -> None:
    wait(task)
    raise ValueError("failed after the wait")


@mux.handler("sleep")
def sleep(task: RunningTask) -> None:
    tell("started", task)
    time.sleep(float(task.headers["seconds"]))
    tell("done", task)


@mux.handler("nap")
def nap(task: RunningTask) -> None:
    """Sleep, and tell nothing of the end: Redis may be away."""
    tell("started", task)
    time.sleep(float(task.headers["seconds"]))


@mux.handler("until-file")
def wait_for_file(task: RunningTask) -> None:
    """Run until there is a file: Redis may be away, and the end must be the test's to say."""
    tell("started", task)
    while not os.path.exists(task.headers["file"]):
        time.sleep(0.005)


@mux.handler("pause-queues")
def pause_queues(task: RunningTask) -> None:
    """Let no queue be served from now on, as an operator would."""
    ask("MSET", *(word for queue in task.json() for word in (f"asynq:{{{queue}}}:paused", 1)))


@mux.handler("spin")
def spin(task: RunningTask) -> None:
    tell("started", task)
    while True:
        pass


@mux.handler("deaf")
def deaf(task: RunningTask) -> None:
    """Go on whatever is raised."""
    word = "started"
    while True:
        try:
            tell(word, task)
            time.sleep(LONG_S)
        except BaseException:  # noqa: BLE001 - that is what it is for
            word = "told"


@mux.handler("clean")
def clean_up(task: RunningTask) -> None:
    try:
        tell("started", task)
        time.sleep(LONG_S)
    finally:
        tell("cleaned", task)


@mux.handler("gil")
def hold_gil(task: RunningTask) -> None:
    """Read a FIFO in C without letting go of the interpreter."""
    fifo = os.open(task.headers["fifo"], os.O_RDWR)  # one that were only read would be at its end
    tell("started", task)
    ctypes.PyDLL(None).read(fifo, ctypes.create_string_buffer(1), 1)
    os.close(fifo)
    tell("done", task)


@mux.handler("c-loop")
def loop_in_c(task: RunningTask) -> None:
    """Stay for ever in one C call that holds the interpreter and, unlike a big power, never looks for signals."""
    try:
        tell("started", task)
        stay_in_c()
    except (TaskCanceled, TaskTimeout):  # before it was there, where this process stood still; it is told once
        stay_in_c()


def stay_in_c() -> None:
    deque(itertools.repeat(None), maxlen=0)


@mux.handler("hog")
def take_memory(task: RunningTask) -> None:
    """Take so many megabytes, and keep them."""
    HOARD.append(bytearray(task.json() << 20))
    tell("ran", task)


@mux.handler("overeat")
def overeat(task: RunningTask) -> None:
    """Take so many megabytes, and go on until somebody minds."""
    try:
        HOARD.append(bytearray(task.json() << 20))
        time.sleep(LONG_S)
    finally:
        tell("cleaned", task)


@mux.handler("with-process")
def start_process(task: RunningTask) -> None:
    """Hang, with a process of its own that would go on."""
    with subprocess.Popen(["sleep", str(LONG_S)]) as own:
        ask("RPUSH", EVENTS, f"started {task.id} {own.pid}")
        deque(itertools.repeat(None), maxlen=0)


@mux.handler("chain")
def chain(task: RunningTask) -> None:
    """Enqueue the next of so many tasks."""
    left = task.json()
    tell(f"link-{left}", task)
    if left:
        with fastq.Client(os.environ["FASTQ_REDIS_URL"]) as client:
            client.enqueue("chain", left - 1, queue=task.queue)


@mux.handler("async-echo")
async def async_echo(task: RunningTask) -> Any:
    await asyncio.sleep(0.01)
    assert current_task() is task
    return task.json()


@mux.handler("async-fail")
async def async_fail(task: RunningTask) -> None:
    await asyncio.sleep(0)
    raise ValueError(task.json())


@mux.handler("async-wait")
async def async_wait(task: RunningTask) -> None:
    tell("started", task)
    await asyncio.sleep(3600)


@mux.handler("async-stuck")
async def async_stuck(task: RunningTask) -> None:
    """Block the loop, and the interpreter, for ever."""
    loop_in_c(task)


@mux.handler("async-deaf")
async def async_deaf(task: RunningTask) -> None:
    """Go on whatever is raised."""
    word = "started"
    while True:
        try:
            tell(word, task)
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            word = "told"


@mux.handler("async-gate")
async def async_pass_gate(task: RunningTask) -> None:
    """Run until the gate lets it pass, and let others run meanwhile."""
    tell("started", task)
    while not ask("LPOP", gate("g")):
        await asyncio.sleep(0.01)
    tell("done", task)


@mux.handler("then-skip")
def skip_when_told(task: RunningTask) -> None:
    try:
        spin(task)
    except (TaskCanceled, TaskTimeout) as error:
        raise SkipRetry("no use now") from error


@mux.handler("then-revoke")
def revoke_when_told(task: RunningTask) -> None:
    try:
        spin(task)
    finally:
        raise RevokeTask("nobody waits for it")


@mux.handler("async-then-skip")
async def async_skip_when_told(task: RunningTask) -> None:
    try:
        await async_wait(task)
    except asyncio.CancelledError as error:
        raise SkipRetry("no use now") from error


@mux.handler("async-then-revoke")
async def async_revoke_when_told(task: RunningTask) -> None:
    try:
        await async_wait(task)
    finally:
        raise RevokeTask("nobody waits for it")


# Hooks --------------------------------------------------------------------------------------------------------------


def retry_delay(retried: int, error: BaseException, task: RunningTask) -> float:
    tell(f"retry_delay-{retried}-{type(error).__name__}", task)
    return float(task.headers.get("delay", 3600))


def is_failure(error: BaseException) -> bool:
    return not isinstance(error, NotCountedError)


def error_handler(task: RunningTask, error: BaseException) -> None:
    tell(f"error_handler-{type(error).__name__}", task)
    if task.headers.get("handler") == "raises":
        raise RuntimeError("the error handler has one of its own")


def quick_retry(retried: int, error: BaseException, task: RunningTask) -> float:
    return 0.0


def late_retry(retried: int, error: BaseException, task: RunningTask) -> float:
    return 3600.0


HOOKS = tuple(
    word
    for hook in ("retry_delay", "is_failure", "error_handler")
    for word in (f"--{hook.replace('_', '-')}", f"tests.e2e.apps:{hook}")
)


# Groups -------------------------------------------------------------------------------------------------------------


def aggregate(group: str, tasks: Sequence[GroupedTask]) -> Task:
    """Make one task of a group; one named "wait…" does so when the gate lets it pass."""
    if group.startswith("wait"):
        ask("RPUSH", EVENTS, f"aggregating {group} {os.getpid()}")
        ask("BLPOP", gate(group), LONG_S)
    if group.startswith("bad"):
        raise ValueError(f"no {group}")
    return Task("whole", [group, [task.payload.decode() for task in tasks]], retention=3600)


async def aggregate_later(group: str, tasks: Sequence[GroupedTask]) -> Task:
    return aggregate(group, tasks)


@mux.handler("whole")
def whole(task: RunningTask) -> Any:
    return task.json()


# Middleware ---------------------------------------------------------------------------------------------------------


def outer(handler: Handler) -> Handler:
    def wrapped(task: RunningTask) -> Any:
        try:
            return ["outer", *handler(task)]  # type: ignore[misc]  # this app's handlers return lists
        except LookupError as error:
            return ["outer", type(error).__name__]

    return wrapped


def inner(handler: Handler) -> Handler:
    def wrapped(task: RunningTask) -> Any:
        return ["inner", *handler(task)]  # type: ignore[misc]  # as above

    return wrapped


@narrow.handler("only this")
def only_this(task: RunningTask) -> None:
    return None


@layered.handler("list")
def give_list(task: RunningTask) -> list[str]:
    return ["handler"]


layered.use(outer, inner)
