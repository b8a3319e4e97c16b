"""Runners for the tests: a task's bytes are JSON that names what to do; beacons tell the test how far it got."""

import asyncio
import collections
import contextlib
import contextvars
import ctypes
import itertools
import json
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence

from fastq.common.devices import assigned
from fastq.errors import TaskCanceled, TaskTimeout
from fastq.pool.shared import layout
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.memory import Segment
from fastq.pool.shared.runner import Answer, TaskContext


def signal_beacon(order: dict[str, str], text: str) -> None:
    """Notify the test, which waits at the datagram socket that the order names."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(order["beacon"])
        sender.send(text.encode())


def stay_in_c() -> None:
    """Loop in one C call that neither lets go of the GIL nor looks at signals."""
    collections.deque(itertools.repeat(None), maxlen=0)


def surely(hang: Callable[[], None]) -> None:
    """Hang, though the soft signal, which comes once, may be raised before that, where this process stands still."""
    try:
        hang()
    except (TaskTimeout, TaskCanceled):
        hang()


def noop(order: dict[str, str], context: TaskContext) -> Answer:
    return None


def echo(order: dict[str, str], context: TaskContext) -> Answer:
    return EventKind.RESULT, order["text"].encode()


CALL = [1]
"""Of how many tasks the last call was."""


def call_size(order: dict[str, str], context: TaskContext) -> Answer:
    return EventKind.RESULT, str(CALL[0]).encode()


def size(order: dict[str, str], context: TaskContext) -> Answer:
    """Answer with so many bytes."""
    return EventKind.RESULT, b"r" * int(order["size"])


def nap(order: dict[str, str], context: TaskContext) -> Answer:
    time.sleep(0.002)
    return None


def pid(order: dict[str, str], context: TaskContext) -> Answer:
    return EventKind.RESULT, str(os.getpid()).encode()


def device(order: dict[str, str], context: TaskContext) -> Answer:
    """Answer with the process, and the device that it has by its environment and by fastq."""
    if "file" in order:
        wait_for(order, context)
    named = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("HIP_VISIBLE_DEVICES"), assigned()
    return EventKind.RESULT, f"{os.getpid()} {','.join(map(str, named))}".encode()


def spin(order: dict[str, str], context: TaskContext) -> Answer:
    signal_beacon(order, f"started {os.getpid()}")
    while True:
        pass


def spin_silently(order: dict[str, str], context: TaskContext) -> Answer:
    while True:
        pass


def sleep(order: dict[str, str], context: TaskContext) -> Answer:
    signal_beacon(order, f"started {os.getpid()}")
    time.sleep(10**6)
    return None


def sleep_surely(order: dict[str, str], context: TaskContext) -> Answer:
    def hang() -> None:
        signal_beacon(order, f"started {os.getpid()}")
        time.sleep(10**6)

    surely(hang)
    return None


def hold_gil(order: dict[str, str], context: TaskContext) -> Answer:
    def hang() -> None:
        signal_beacon(order, f"started {os.getpid()}")
        stay_in_c()

    surely(hang)
    return None


def hold_gil_in_c(order: dict[str, str], context: TaskContext) -> Answer:
    def hang() -> None:
        signal_beacon(order, f"started {os.getpid()}")
        libc = ctypes.PyDLL(None)  # PyDLL keeps the GIL
        mutex = ctypes.create_string_buffer(1024)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)  # blocks for ever, and takes no notice of signals

    surely(hang)
    return None


def ignore(order: dict[str, str], context: TaskContext) -> Answer:
    """Swallow whatever is raised inside."""
    text = f"started {os.getpid()}"
    while True:
        try:
            signal_beacon(order, text)
            while True:
                pass
        except BaseException as error:  # noqa: BLE001 - the worst that a handler can do
            text = f"ignored {type(error).__name__}"


def return_late(order: dict[str, str], context: TaskContext) -> Answer:
    """Swallow the soft signal and return as if all were well."""
    try:
        signal_beacon(order, f"started {os.getpid()}")
        time.sleep(10**6)
    except (TaskTimeout, TaskCanceled):
        return EventKind.RESULT, b"late"
    return None


def clean_up(order: dict[str, str], context: TaskContext) -> Answer:
    """Let the soft signal pass, after cleaning up."""
    try:
        signal_beacon(order, f"started {os.getpid()}")
        time.sleep(10**6)
    except BaseException as error:
        signal_beacon(order, f"cleaned {type(error).__name__}")
        raise
    return None


def explain(order: dict[str, str], context: TaskContext) -> Answer:
    """Answer with what the runner knows of the interruption, as a worker's hooks do."""
    try:
        signal_beacon(order, f"started {os.getpid()}")
        time.sleep(10**6)
    except (TaskTimeout, TaskCanceled):
        kind = context.interruption
        assert kind is not None
        return kind, b"retry in 7 s"
    return None


def segfault(order: dict[str, str], context: TaskContext) -> Answer:
    ctypes.string_at(0)
    return None


def exit_hard(order: dict[str, str], context: TaskContext) -> Answer:
    os._exit(3)


def exit_softly(order: dict[str, str], context: TaskContext) -> Answer:
    raise SystemExit(3)


def kill_self(order: dict[str, str], context: TaskContext) -> Answer:
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def fork_and_return(order: dict[str, str], context: TaskContext) -> Answer:
    """Let a forked process come out of the handler as well."""
    os.fork()
    return EventKind.RESULT, b"one of two"


def wait_for(order: dict[str, str], context: TaskContext) -> Answer:
    """Wait until the test has made a file."""
    signal_beacon(order, f"started {os.getpid()}")
    while not os.path.exists(order["file"]):
        time.sleep(0.001)
    return None


def thread(order: dict[str, str], context: TaskContext) -> Answer:
    """Answer with the process and the thread that it is in, and keep something for that thread."""
    if not hasattr(_LOCAL, "kept"):
        _LOCAL.kept = _Kept(order)
    return EventKind.RESULT, f"{os.getpid()} {threading.get_native_id()}".encode()


_LOCAL = threading.local()


class _Kept:
    """An object that tells where it is freed, as a connection to a database is closed."""

    def __init__(self, order: dict[str, str]) -> None:
        self._order = order

    def __del__(self) -> None:
        signal_beacon(self._order, f"freed {os.getpid()} {threading.get_native_id()}")


def wait_and_hold_gil(order: dict[str, str], context: TaskContext) -> Answer:
    """Hold the GIL once the file is there."""
    wait_for(order, context)
    stay_in_c()
    return None


def with_grandchildren(order: dict[str, str], context: TaskContext) -> Answer:
    """Start one process by exec and one by fork, then hold the GIL."""

    def hang() -> None:
        program = subprocess.Popen(["sleep", "1000000"])
        fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(10**6,))
        fork.start()
        signal_beacon(order, f"started {os.getpid()} {program.pid} {fork.pid}")
        stay_in_c()

    surely(hang)
    return None


def leave_grandchild(order: dict[str, str], context: TaskContext) -> Answer:
    """Start a process that outlives the handler, then crash."""
    program = subprocess.Popen(["sleep", "1000000"])
    signal_beacon(order, f"started {os.getpid()} {program.pid}")
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def use_terminate(order: dict[str, str], context: TaskContext) -> Answer:
    """End a forked and a started process by SIGTERM, as handlers do."""
    fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(10**6,))
    fork.start()
    fork.terminate()
    fork.join()
    program = subprocess.Popen(["sleep", "1000000"])
    program.terminate()
    return EventKind.RESULT, f"{fork.exitcode} {program.wait()}".encode()


def write(order: dict[str, str], context: TaskContext) -> Answer:
    """Write intermediate results of so many bytes, as often as asked."""
    for number in range(int(order.get("times", "1"))):
        context.write_result(bytes([number % 256]) * int(order["size"]))
    return None


def save(order: dict[str, str], context: TaskContext) -> Answer:
    """Save checkpoints, and wait until the last one is."""
    numbers = [context.save(f"state {n}".encode()) for n in range(2)]
    while not context.is_saved(numbers[-1]):
        time.sleep(0.001)
    return EventKind.RESULT, repr(numbers).encode()


def wait_for_stop(order: dict[str, str], context: TaskContext) -> Answer:
    """Run until running tasks should come to an end."""
    signal_beacon(order, f"started {os.getpid()}")
    while not context.is_stopping:
        time.sleep(0.001)
    return None


def allocate(order: dict[str, str], context: TaskContext) -> Answer:
    """Keep so many bytes for good."""
    _KEPT.append(bytearray(os.urandom(1024) * (int(order["size"]) // 1024)))
    return EventKind.RESULT, str(os.getpid()).encode()


_KEPT: list[bytearray] = []


def grow(order: dict[str, str], context: TaskContext) -> Answer:
    """Keep so many bytes, and go on."""
    allocate(order, context)
    time.sleep(10**6)
    return None


def grow_and_clean_up(order: dict[str, str], context: TaskContext) -> Answer:
    """Keep so many bytes, and say what is raised in here."""
    signal_beacon(order, f"started {os.getpid()}")
    try:
        allocate(order, context)
        time.sleep(10**6)
    except BaseException as error:
        signal_beacon(order, f"cleaned {type(error).__name__}: {error}")
        raise
    return None


def wait_and_grow(order: dict[str, str], context: TaskContext) -> Answer:
    """Keep so many bytes once the file is there, and go on."""
    wait_for(order, context)
    allocate(order, context)
    signal_beacon(order, "grown")
    time.sleep(10**6)
    return None


def grow_and_ignore(order: dict[str, str], context: TaskContext) -> Answer:
    """Keep so many bytes, and swallow whatever is raised inside."""
    with contextlib.suppress(BaseException):
        allocate(order, context)
    return ignore(order, context)


def scribble(order: dict[str, str], context: TaskContext) -> Answer:
    """Write over the shared memory, as a wild pointer might."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "memfd:fastq" in os.readlink(f"/proc/self/fd/{name}") and os.fstat(int(name)).st_size > layout.PAGE:
                Segment.attach(int(name)).memory[layout.RESULT_TAIL_AT + 5] = 99
    time.sleep(10**6)
    return None


def wrong_answer(order: dict[str, str], context: TaskContext) -> Answer:
    return EventKind.CRASHED, b"not a runner's to say"


def limits(order: dict[str, str], context: TaskContext) -> Answer:
    """Answer with the soft limits of descriptors at the import, and now."""
    now = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return EventKind.RESULT, f"{_LIMIT_AT_IMPORT} {now}".encode()


_LIMIT_AT_IMPORT = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_error(order: dict[str, str], context: TaskContext) -> Answer:
    raise ZeroDivisionError("the runner is broken")


class _Indescribable(Exception):  # noqa: N818 - it is one in name only
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]  # as an error may do
        raise SystemExit(1)


def raise_indescribable(order: dict[str, str], context: TaskContext) -> Answer:
    raise _Indescribable


def raise_bad_text(order: dict[str, str], context: TaskContext) -> Answer:
    raise ZeroDivisionError("\ud800")


HANDLERS: dict[str, Callable[[dict[str, str], TaskContext], Answer]] = {
    handler.__name__: handler
    for handler in (
        noop, nap, echo, call_size, size, pid, spin, spin_silently, sleep, sleep_surely, hold_gil, hold_gil_in_c,
        ignore, return_late, clean_up, explain, segfault, device,
        exit_hard, exit_softly, kill_self, fork_and_return, wait_for, thread, with_grandchildren, leave_grandchild,
        wait_and_hold_gil, use_terminate, write, save, wait_for_stop, allocate, grow, grow_and_clean_up,
        grow_and_ignore, wait_and_grow, scribble, wrong_answer, raise_error, raise_bad_text,
        raise_indescribable, limits,
    )
}  # fmt: skip


class TestRunner:
    """Run orders."""

    __test__ = False
    has_plain = True
    has_async = True
    description = "runs orders"
    child_start: Sequence[Callable[[], object]] = ()
    child_stop: Sequence[Callable[[], object]] = ()

    def run(self, data: bytes, context: TaskContext) -> Answer:
        order = json.loads(data)
        return HANDLERS[order["do"]](order, context)

    async def run_async(self, data: bytes, context: TaskContext) -> Answer:
        order = json.loads(data)
        if order["do"] != "noop":
            signal_beacon(order, f"started {os.getpid()}")
            await COROUTINES[order["do"]](order)
        return EventKind.RESULT, f"{order['do']} {os.getpid()}".encode()

    def run_batch(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> list[Answer] | None:
        CALL[0] = len(data)
        return _none_for_all([self.run(*each) for each in zip(data, contexts, strict=True)])

    async def run_batch_async(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> list[Answer] | None:
        CALL[0] = len(data)
        orders = [json.loads(each) for each in data]
        for order in orders:
            if order["do"] in COROUTINES:
                signal_beacon(order, f"started {os.getpid()}")
                await COROUTINES[order["do"]](order)
        of_handlers = zip(orders, contexts, strict=True)
        return [None if one["do"] in COROUTINES else HANDLERS[one["do"]](one, each) for one, each in of_handlers]


def _none_for_all(answers: list[Answer]) -> list[Answer] | None:
    return answers if any(answer is not None for answer in answers) else None


async def async_wait_for(order: dict[str, str]) -> None:
    while not os.path.exists(order["file"]):
        await asyncio.sleep(0.001)


async def async_sleep(order: dict[str, str]) -> None:
    await asyncio.sleep(10**6)


async def async_grow(order: dict[str, str]) -> None:
    """Keep so many bytes, and go on."""
    _KEPT.append(bytearray(os.urandom(1024) * (int(order["size"]) // 1024)))
    signal_beacon(order, "grown")
    await asyncio.sleep(10**6)


async def async_grow_for_a_while(order: dict[str, str]) -> None:
    """Allocate so many bytes once the file is there, and free them at the end."""
    await async_wait_for(order)
    held = bytearray(os.urandom(1024) * (int(order["size"]) // 1024))
    signal_beacon(order, "grown")
    await asyncio.sleep(10**6)
    del held


async def async_grow_and_block(order: dict[str, str]) -> None:
    await async_wait_for(order)
    _KEPT.append(bytearray(os.urandom(1024) * (int(order["size"]) // 1024)))
    signal_beacon(order, "grown")
    time.sleep(10**6)


async def async_ignore(order: dict[str, str]) -> None:
    while True:
        try:
            await asyncio.sleep(10**6)
        except asyncio.CancelledError:
            signal_beacon(order, "ignored")


async def async_block(order: dict[str, str]) -> None:
    time.sleep(10**6)


async def async_block_in_c(order: dict[str, str]) -> None:
    """Block the loop in a call that lets go of the GIL, and takes no notice of signals."""
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(1024)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


async def async_let_go(order: dict[str, str]) -> None:
    """Block the loop, and let go of the GIL time and again."""
    while True:
        time.sleep(0)


async def async_cancel_self(order: dict[str, str]) -> None:
    raise asyncio.CancelledError


async def async_cancel_next(order: dict[str, str]) -> None:
    """Let no other task come until the file is there, and cancel those that then come before they begin."""

    def cancel() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    asyncio.get_running_loop().call_soon(cancel)
    while not os.path.exists(order["file"]):
        time.sleep(0.001)


async def async_stop_loop(order: dict[str, str]) -> None:
    asyncio.get_running_loop().stop()


async def async_raise_indescribable(order: dict[str, str]) -> None:
    raise _Indescribable


async def async_kill_self(order: dict[str, str]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


COROUTINES = {
    coroutine.__name__.removeprefix("async_"): coroutine
    for coroutine in (
        async_wait_for,
        async_sleep,
        async_grow,
        async_grow_for_a_while,
        async_grow_and_block,
        async_ignore,
        async_block,
        async_block_in_c,
        async_let_go,
        async_cancel_self,
        async_cancel_next,
        async_stop_loop,
        async_raise_indescribable,
        async_kill_self,
    )
}


def load(argument: str) -> TestRunner:
    """Make the runner; the argument can ask for trouble at import."""
    match argument:
        case "raise":
            raise RuntimeError("the app cannot be imported")
        case "exit":
            raise SystemExit("no")
        case "segfault":
            ctypes.string_at(0)
        case "hang":
            stay_in_c()
        case "lower_limit":
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        case "torch":
            torch = types.ModuleType("torch")
            torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)  # type: ignore[attr-defined]
            sys.modules["torch"] = torch
        case "threads":
            threading.Thread(target=threading.Event().wait, name="poller", daemon=True).start()
        case "only_async":
            runner = TestRunner()
            runner.has_plain = False
            return runner
    return TestRunner()


def load_forking(argument: str) -> TestRunner:
    """Make the runner, and fork a process at import, whose id is its description."""
    runner = TestRunner()
    if (forked := os.fork()) == 0:
        signal.pause()
    runner.description = str(forked)
    return runner


class CrashingRunner(TestRunner):
    """A runner that loads in the preloader and dies in the child, before it is ready."""

    @property
    def description(self) -> str:  # type: ignore[override]  # an attribute there, trouble on purpose here
        os.kill(os.getpid(), signal.SIGSEGV)
        return ""


def load_ill_at_times(argument: str) -> TestRunner:
    """Make a runner whose children die or fail at their start while the file that the argument names has a word."""
    return IllAtTimesRunner(argument)


class IllAtTimesRunner(TestRunner):
    """A runner that works, unless a file says otherwise."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._suffer("import")

    def _suffer(self, when: str) -> None:
        illness = ""
        with contextlib.suppress(FileNotFoundError), open(self._path) as file:
            illness = file.read()
        if illness == f"die at {when}":
            os.kill(os.getpid(), signal.SIGKILL)
        if illness in (f"raise at {when}", f"raise at {when} on {assigned()}"):
            raise RuntimeError("it worked before")

    @property
    def description(self) -> str:  # type: ignore[override]  # an attribute there, trouble on purpose here
        self._suffer("start")
        return "ill at times"


def load_short_of_threads(path: str) -> TestRunner:
    """Make a runner whose children get no thread while the file at the path is there."""

    def limit() -> None:
        threading.stack_size(64 << 20)
        if os.path.exists(path):
            refuse_threads(0)

    runner = TestRunner()
    runner.child_start = (limit,)
    return runner


def refuse_threads(pid: int) -> None:
    """Let a process, 0 for this one, have no memory left for the 64 MB of a thread's stack."""
    with open(f"/proc/{pid or os.getpid()}/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (size + (32 << 20), resource.RLIM_INFINITY))


def load_with_hooks(directory: str) -> TestRunner:
    """Make a runner whose children note in a directory how they begin and end; a file there, ``ill``, spoils both."""
    return RunnerWithHooks(directory)


STARTED_IN: contextvars.ContextVar[int] = contextvars.ContextVar("STARTED_IN")


class RunnerWithHooks(TestRunner):
    """Note what was called in which process, in order."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.child_start = (lambda: self._note("start"), self._start_async)
        self.child_stop = (self._stop_async, lambda: self._note("stop"))
        self._loop: asyncio.AbstractEventLoop | None = None

    def _note(self, what: str) -> None:
        if what == "async stop" and os.path.exists(f"{self._directory}/stuck"):
            stay_in_c()
        if os.path.exists(f"{self._directory}/ill"):
            raise RuntimeError(f"no {what} today")
        with open(f"{self._directory}/{os.getpid()}", "a") as file:
            file.write(f"{what}\n")

    async def _start_async(self) -> None:
        await asyncio.sleep(0)
        STARTED_IN.set(os.getpid())
        self._loop = asyncio.get_running_loop()
        self._note("async start")

    async def _stop_async(self) -> None:
        assert asyncio.get_running_loop() is self._loop
        self._note("async stop")

    def run(self, data: bytes, context: TaskContext) -> Answer:
        assert STARTED_IN.get() == os.getpid()
        self._note("task")
        return super().run(data, context)

    async def run_async(self, data: bytes, context: TaskContext) -> Answer:
        assert asyncio.get_running_loop() is self._loop
        assert STARTED_IN.get() == os.getpid()
        self._note("async task")
        return await super().run_async(data, context)


def load_printing(argument: str) -> TestRunner:
    """Print a line at import, as an app may."""
    print("imported")  # noqa: T201 - what is printed is what the test looks at
    return TestRunner()


def load_crashing(argument: str) -> TestRunner:
    return CrashingRunner()
