"""Tasks in threads that are told to end while they take a lock, which must not stay taken, or only wait."""

import contextlib
import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from fastq.errors import TaskCanceled
from fastq.log.handling import take_locks_by_with
from fastq.pool.shared import layout
from tests.pool.site import Site
from tests.waiting import PATIENCE_S, wait_until


class Lock(NamedTuple):
    """A lock, how a task takes and keeps it, and the function in which the task waits for it."""

    lock: Any
    use: Callable[[Callable[[], None]], None]
    waits_in: str


def plain_lock() -> Lock:
    lock = threading.Lock()

    def take(then: Callable[[], None]) -> None:
        lock.acquire()
        try:
            then()
        finally:
            lock.release()

    return Lock(lock, take, "take")


def lock_with_arguments() -> Lock:
    lock = threading.RLock()

    def take(then: Callable[[], None]) -> None:
        if lock.acquire(True, timeout=threading.TIMEOUT_MAX):
            try:
                then()
            finally:
                lock.release()

    return Lock(lock, take, "take")


def lock_with_a_choice_of_arguments() -> Lock:
    lock = threading.Lock()

    def take(then: Callable[[], None], patience_s: float | None = None) -> None:
        if not lock.acquire(timeout=PATIENCE_S if patience_s is None else patience_s):
            return
        try:
            then()
        finally:
            lock.release()

    return Lock(lock, take, "take")


def lock_behind_many_names() -> Lock:
    """An instruction has room for 256 names; those of others are told by two."""
    lock = threading.Lock()
    names = "\n".join(f"    taken.name_{n} = n" for n in range(300))
    scope: dict[str, Any] = {}
    taking = "    lock.acquire()\n    try: then()\n    finally: lock.release()"
    code = f"def take(then, taken=SimpleNamespace(), n=0):\n{names}\n{taking}"
    exec(code, {"lock": lock, "SimpleNamespace": SimpleNamespace}, scope)
    return Lock(lock, scope["take"], "take")


def condition() -> Lock:
    lock = threading.Lock()
    shared = threading.Condition(lock)

    def take(then: Callable[[], None]) -> None:
        with shared:
            then()

    return Lock(lock, take, "__enter__")


def context_manager() -> Lock:
    lock = threading.Lock()

    @contextlib.contextmanager
    def taken() -> Iterator[None]:
        acquire = lock.acquire
        acquire()
        try:
            yield
        finally:
            lock.release()

    def take(then: Callable[[], None]) -> None:
        with taken():
            then()

    return Lock(lock, take, "taken")


def exit_stack() -> Lock:
    lock = threading.Lock()

    def take(then: Callable[[], None]) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(lock)
            then()

    return Lock(lock, take, "enter_context")


def handler_of_a_library() -> Lock:
    """As logging's own before Python 3.13."""

    class Handler(logging.NullHandler):
        def createLock(self) -> None:  # noqa: N802 - logging's name
            self.lock = threading.RLock()

    handler = Handler()

    def take(then: Callable[[], None]) -> None:
        handler.acquire()
        try:
            then()
        finally:
            handler.release()

    return Lock(handler.lock, take, "acquire")


@pytest.mark.parametrize(
    "make",
    [
        plain_lock,
        lock_with_arguments,
        lock_with_a_choice_of_arguments,
        lock_behind_many_names,
        condition,
        context_manager,
        exit_stack,
        handler_of_a_library,
    ],
)
def test_a_lock_that_a_task_waits_for_as_its_time_is_up_is_given_back(make: Callable[[], Lock]) -> None:
    lock, use, waits_in = make()
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    with Thread(lambda: use(spin)) as thread:
        with lock:
            thread.start()
            wait_until(lambda: thread.is_in(waits_in))
            assert not thread.tell()
        try:
            wait_until(thread.tell)
        finally:
            stop.set()
        thread.end()
        assert lock.acquire(timeout=PATIENCE_S)
        lock.release()


class Thread:
    """The thread of a task that is told to end."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.site = Site(self._run)
        self.task = self.site.begin(7)
        self._handle = run
        self.ended_by: BaseException | None = None
        self._thread = threading.Thread(target=self.site.work.run_in_thread, args=[self.task])

    def __enter__(self) -> "Thread":
        return self

    def __exit__(self, *_: object) -> None:
        self.site.wakeup.close()

    def _run(self, data: bytes, context: object) -> None:
        del data, context
        try:
            self._handle()
        except TaskCanceled as error:
            self.ended_by = error
            raise

    def start(self) -> None:
        self._thread.start()

    def is_in(self, name: str) -> bool:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return frame is not None and frame.f_code.co_name == name

    def tell(self) -> bool:
        self.site.slots.interrupt(7, layout.ROW_CANCELED)
        return self.site.work.raise_in_thread(self.task)

    def end(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.ended_by is not None


class Wait(NamedTuple):
    """A wait, and what ends it."""

    wait: Callable[[], object]
    end: Callable[[], object]


def of_event() -> Wait:
    event = threading.Event()
    return Wait(event.wait, event.set)


def of_semaphore() -> Wait:
    semaphore = threading.Semaphore(0)
    return Wait(semaphore.acquire, semaphore.release)


def of_queue() -> Wait:
    elements = queue.Queue[int]()
    return Wait(elements.get, lambda: elements.put(1))


def of_simple_queue() -> Wait:
    elements = queue.SimpleQueue[int]()
    return Wait(elements.get, lambda: elements.put(1))


def of_future() -> Wait:
    future = Future[int]()
    return Wait(future.result, lambda: future.set_result(1))


def of_thread() -> Wait:
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    return Wait(thread.join, event.set)


def of_with() -> Wait:
    lock = threading.Lock()
    lock.acquire()

    def take() -> None:
        with lock:
            pass

    return Wait(take, lock.release)


def of_queue_behind_a_lock() -> Wait:
    lock, elements = threading.Lock(), queue.SimpleQueue[int]()

    def wait() -> None:
        if lock.acquire(timeout=1 if elements.empty() else 0):
            elements.get()

    return Wait(wait, lambda: elements.put(1))


@pytest.mark.parametrize(
    "make",
    [of_event, of_semaphore, of_queue, of_simple_queue, of_queue_behind_a_lock, of_future, of_thread, of_with],
)
def test_one_that_only_waits_is_told_at_once(make: Callable[[], Wait]) -> None:
    wait, end = make()

    def handle() -> None:
        wait()
        raise AssertionError("nothing was raised as the wait ended")

    with Thread(handle) as thread:
        thread.start()
        try:
            wait_until(thread.tell)
            assert thread.tell(), "once is enough"
        finally:
            end()
        thread.end()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="logging does so itself")
def test_a_task_that_waits_to_log_is_told_at_once_and_leaves_the_handler_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.Handler, "handle", logging.Handler.handle)
    take_locks_by_with()
    written: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(record.getMessage())

    handler = Handler()
    handler.addFilter(lambda record: record.getMessage() != "left out")
    record = logging.makeLogRecord({"msg": "line"})

    def handle() -> None:
        while True:
            handler.handle(record)

    assert handler.lock is not None
    with Thread(handle) as thread:
        with handler.lock:
            thread.start()
            wait_until(lambda: thread.is_in("_handle_with"))
            wait_until(thread.tell)
        thread.end()
        assert handler.lock.acquire(timeout=PATIENCE_S)
        handler.lock.release()
    written.clear()
    assert not handler.handle(logging.makeLogRecord({"msg": "left out"}))
    assert handler.handle(record)
    assert written == ["line"]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="logging does not do so any more")
def test_a_handler_with_locks_of_its_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.Handler, "handle", logging.Handler.handle)
    take_locks_by_with()
    steps: list[str] = []

    class Handler(logging.Handler):
        def acquire(self) -> None:
            steps.append("acquire")

        def release(self) -> None:
            steps.append("release")

        def emit(self, record: logging.LogRecord) -> None:
            steps.append(record.getMessage())

    handler = Handler()
    steps.clear()
    assert handler.handle(logging.makeLogRecord({"msg": "line"}))
    assert steps == ["acquire", "line", "release"]
    handler.lock = None
    assert handler.handle(logging.makeLogRecord({"msg": "without a lock"}))
