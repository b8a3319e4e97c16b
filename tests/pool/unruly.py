"""Runners for what handlers do beyond their own thread, process and time; orders and beacons as in ``runners``."""

import asyncio
import contextvars
import json
import multiprocessing
import os
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from types import FrameType
from typing import Any

from fastq.errors import TaskEndedError
from fastq.pool.shared import layout
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.memory import Segment
from fastq.pool.shared.runner import Answer, TaskContext
from tests.pool.runners import signal_beacon

Order = dict[str, str]
VAR = contextvars.ContextVar("VAR", default="unset")
_contexts: list[TaskContext] = []


def noop(order: Order, context: TaskContext) -> Answer:
    return EventKind.RESULT, str(os.getpid()).encode()


def keep(order: Order, context: TaskContext) -> Answer:
    """Keep the task's context beyond its end."""
    _contexts.append(context)
    return None


def write_for_the_ended(order: Order, context: TaskContext) -> Answer:
    """Write a result for the task whose context was kept."""
    try:
        _contexts[0].write_result(b"late" * int(order["times"]))
    except TaskEndedError as error:
        return EventKind.RESULT, str(error).encode()
    return EventKind.RESULT, b"written"


def write_from_threads(order: Order, context: TaskContext) -> Answer:
    """Write from eight threads at once."""
    size = int(order["size"])
    threads = [threading.Thread(target=context.write_result, args=(bytes([n]) * size,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return None


class InterruptedByHandlerError(Exception):
    """Raised by an app's own signal handler."""


def raise_between_segment_and_record(order: Order, context: TaskContext) -> Answer:
    """Write twice; the first time something raises where a segment was just sent, as a signal handler may."""

    def raise_there(frame: FrameType, event: str, argument: object) -> None:
        if event == "return" and frame.f_code.co_name == "send_segment":
            sys.setprofile(None)
            raise InterruptedByHandlerError

    sys.setprofile(raise_there)
    try:
        context.write_result(b"1" * int(order["size"]))
    except InterruptedByHandlerError:
        context.write_result(b"2" * int(order["size"]))
    return None


def write_marks(order: Order, context: TaskContext) -> Answer:
    """Write a long and a short result, each with the mark of the task."""
    context.write_result(order["mark"].encode() * int(order["size"]))
    time.sleep(0)
    context.write_result(order["mark"].encode())
    return None


def run_out_of_descriptors(order: Order, context: TaskContext) -> Answer:
    """Answer with what needs a descriptor where there is none."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return EventKind.RESULT, b"r" * int(order["size"])


def var(order: Order, context: TaskContext) -> Answer:
    """Return the value of the context variable, and set it."""
    before = VAR.get()
    VAR.set("set by another task")
    return EventKind.RESULT, before.encode()


def become_a_copy(order: Order) -> None:
    """Do what a handler's fork does: print into a file, and end as the order says."""
    file = os.open(order["file"], os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - to be flushed by who ends the process, or not at all
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - the same
    sys.stdout.write("printed by the copy\n")
    match order["end"]:
        case "exit":
            sys.exit()
        case "exit 3":
            sys.exit(3)
        case "exit with a text":
            sys.exit("the text")
        case "raise":
            raise ZeroDivisionError("in the copy")


def fork(order: Order, context: TaskContext) -> Answer:
    pid = os.fork()
    if not pid:
        become_a_copy(order)
        return EventKind.RESULT, b"from the copy"
    return EventKind.RESULT, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode()


def fork_and_write(order: Order, context: TaskContext) -> Answer:
    """Write from forks, bare and of multiprocessing; then from here."""

    def write() -> None:
        try:
            context.write_result(b"from the copy" * int(order["times"]))
        except TaskEndedError as error:
            os._exit(7 if "fork" in str(error) else 8)

    process = multiprocessing.get_context("fork").Process(target=write)
    process.start()
    process.join()
    pid = os.fork()
    if not pid:
        write()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    context.write_result(b"from the parent")
    return EventKind.RESULT, f"{process.exitcode} {status}".encode()


def break_down(order: Order, context: TaskContext) -> Answer:
    """Leave a thread behind, and the task ring in a state in which the child cannot go on."""
    threading.Thread(target=threading.Event().wait).start()
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.exists(path) and "memfd:fastq" in os.readlink(path) and os.fstat(int(name)).st_size > layout.PAGE:
            Segment.attach(int(name)).memory[layout.TASK_TAIL_AT + 5] = 99
    return EventKind.RESULT, str(os.getpid()).encode()


async def async_keep(order: Order, context: TaskContext) -> None:
    _contexts.append(context)


async def async_write_for_the_ended(order: Order, context: TaskContext) -> Answer:
    return write_for_the_ended(order, context)


async def async_write_in_thread(order: Order, context: TaskContext) -> None:
    await asyncio.to_thread(context.write_result, order["mark"].encode() * int(order["size"]))
    await asyncio.sleep(0)
    await asyncio.to_thread(context.write_result, order["mark"].encode())


async def async_write(order: Order, context: TaskContext) -> None:
    signal_beacon(order, "writes")
    for _ in range(int(order["times"])):
        context.write_result(b"w" * int(order["size"]))


async def async_var(order: Order, context: TaskContext) -> Answer:
    await asyncio.sleep(0)
    return var(order, context)


async def async_fork(order: Order, context: TaskContext) -> Answer:
    pid = os.fork()
    if not pid:
        become_a_copy(order)
        if order["end"] == "go on with the loop":
            await asyncio.sleep(0)
        return EventKind.RESULT, b"from the copy"
    return EventKind.RESULT, str(os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1])).encode()


async def async_fork_in_part(order: Order, context: TaskContext) -> Answer:
    """Fork in a coroutine beside the handler's own."""
    (answer,) = await asyncio.gather(async_fork(order, context))
    return answer


async def async_fork_and_write(order: Order, context: TaskContext) -> Answer:
    return fork_and_write(order, context)


async def async_sleep(order: Order, context: TaskContext) -> None:
    signal_beacon(order, "sleeps")
    await asyncio.sleep(10**6)


async def async_wait_for(order: Order, context: TaskContext) -> Answer:
    signal_beacon(order, "waits")
    while not os.path.exists(order["file"]):
        await asyncio.sleep(0.001)
    return noop(order, context)


def leave_by(order: Order) -> None:
    raise SystemExit(3) if order["by"] == "exit" else KeyboardInterrupt


async def async_leave_in_part(order: Order, context: TaskContext) -> None:
    async def part() -> None:
        leave_by(order)

    await asyncio.gather(part(), asyncio.sleep(10**6))


async def async_leave_in_callback(order: Order, context: TaskContext) -> None:
    asyncio.get_running_loop().call_soon(leave_by, order)
    await asyncio.sleep(0.001)


def block(order: Order) -> None:
    signal_beacon(order, "blocks")
    time.sleep(10**6)


async def async_block(order: Order, context: TaskContext) -> None:
    await asyncio.sleep(0)
    block(order)


async def async_block_in_part(order: Order, context: TaskContext) -> None:
    async def part() -> None:
        await asyncio.sleep(0)
        block(order)

    await asyncio.wait_for(part(), 10**6)


async def async_block_in_callback(order: Order, context: TaskContext) -> None:
    asyncio.get_running_loop().call_soon(block, order)
    await asyncio.sleep(10**6)


HANDLERS: dict[str, Callable[[Order, TaskContext], Answer]] = {
    handler.__name__: handler
    for handler in (
        noop, keep, write_for_the_ended, write_from_threads, raise_between_segment_and_record, run_out_of_descriptors,
        write_marks, var, fork, fork_and_write, break_down,
    )
}  # fmt: skip
COROUTINES: dict[str, Callable[[Order, TaskContext], Awaitable[Any]]] = {
    name.removeprefix("async_"): value for name, value in list(globals().items()) if name.startswith("async_")
}


class UnrulyRunner:
    """Run orders."""

    has_plain = True
    has_async = True
    description = "runs unruly orders"
    child_start: Sequence[Callable[[], object]] = ()
    child_stop: Sequence[Callable[[], object]] = ()

    def run(self, data: bytes, context: TaskContext) -> Answer:
        order = json.loads(data)
        return HANDLERS[order["do"]](order, context)

    async def run_async(self, data: bytes, context: TaskContext) -> Answer:
        order = json.loads(data)
        answer: Answer = await COROUTINES[order["do"]](order, context)
        return answer


def load(argument: str) -> UnrulyRunner:
    """Make the runner."""
    return UnrulyRunner()
