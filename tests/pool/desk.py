"""A dispatcher with children whose side of the rings is done by hand, in the test's own process."""

import os
from collections.abc import Iterator

import pytest

from fastq.pool.main.child_queue import ChildQueue, Event, Submission
from fastq.pool.main.dispatcher import Dispatcher
from fastq.pool.shared.control import Channel
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.layout import (
    PAGE,
    RESULT_HEAD_AT,
    RESULT_TAIL_AT,
    TASK_HEAD_AT,
    TASK_TAIL_AT,
    Layout,
)
from fastq.pool.shared.ring import Memory, Ring, now_ns
from fastq.pool.shared.slots import Slots

SHAPE = Layout(4, 1 << 20)
MS = 1_000_000
S = 1000 * MS


class Child:
    """Both sides of one child's rings in this process, the child's side done by hand."""

    def __init__(self, dispatcher: Dispatcher, max_tasks: int = 0) -> None:
        self.memory = bytearray(SHAPE.size)
        memory = Memory(self.memory)
        self.channel, self.far = Channel.pair()
        self.channel.set_blocking(False)
        self.far.set_blocking(False)
        self.queue = ChildQueue(memory, SHAPE, self.channel, max_tasks)
        self.queue.set_open(True)
        self.tasks = Ring(memory, TASK_TAIL_AT, TASK_HEAD_AT, SHAPE.task_ring_at, SHAPE.ring_bytes)
        self.results = Ring(memory, RESULT_TAIL_AT, RESULT_HEAD_AT, SHAPE.result_ring_at, SHAPE.ring_bytes)
        self.slots = Slots(memory, SHAPE.rows)
        dispatcher.add(self.queue)

    def begin(self, ago_ns: int = 0) -> int:
        """Take the next task and start it, as if so long ago."""
        taken = self.tasks.take()
        assert taken is not None
        self.slots.start(0, taken[0], now_ns() - ago_ns, 0)
        return taken[0]

    def end(self, seq: int, ran_ns: int = 1000) -> None:
        self.slots.finish(0, seq)
        self.results.put(seq, b"", kind=EventKind.DONE, a=ran_ns)

    def work_off(self, ran_ns: int = 1000) -> int:
        count = 0
        while (taken := self.tasks.take()) is not None:
            self.end(taken[0], ran_ns)
            count += 1
        return count

    def was_woken(self) -> bool:
        try:
            return bool(os.read(self.far.fileno(), 1 << 16))
        except BlockingIOError:
            return False

    def close(self) -> None:
        self.channel.close()
        self.far.close()


class Desk:
    """A dispatcher and its children."""

    def __init__(self, children: int, prefetch_time: float = 0.05, max_tasks: int = 0) -> None:
        self.dispatcher = Dispatcher(Memory(bytearray(PAGE)), prefetch_time, 256)
        self.children = [Child(self.dispatcher, max_tasks) for _ in range(children)]

    def submit(self, *keys: object, size: int = 10) -> list[Event]:
        return self.dispatcher.submit([Submission(key, b"x" * size, "type") for key in keys])

    def submit_async(self, *keys: object, size: int) -> list[Event]:
        return self.dispatcher.submit([Submission(key, b"x" * size, "coroutine", is_async=True) for key in keys])

    def learn(self, ran_ns: int) -> None:
        """Let the dispatcher see tasks of a certain duration."""
        for _ in range(100):
            self.submit(*range(8))
            for child in self.children:
                child.work_off(ran_ns)
            assert self.dispatcher.collect([]) == []
        while self.dispatcher.pending:
            self.dispatcher.dispatch()
            for child in self.children:
                child.work_off(ran_ns)
            self.dispatcher.collect([])

    @property
    def loads(self) -> list[int]:
        return [child.queue.pending for child in self.children]


@pytest.fixture(name="desk")
def desk_fixture(request: pytest.FixtureRequest) -> Iterator[Desk]:
    made = Desk(*getattr(request, "param", (2,)))
    yield made
    for child in made.children:
        child.close()


def spin_until(moment_ns: int) -> None:
    while now_ns() < moment_ns:
        pass
