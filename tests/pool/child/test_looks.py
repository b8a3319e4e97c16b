"""What comes between two looks at the ring of a child that runs tasks side by side."""

import os
import struct
from collections.abc import Callable, Iterator

import pytest

from fastq.pool.child.coroutines import Coroutines
from fastq.pool.child.steps import Stage
from fastq.pool.child.work import Work
from fastq.pool.shared.layout import COMMAND_AT, COMMAND_EXIT, PAGE, TASK_HEAD_AT, TASK_TAIL_AT, Layout
from fastq.pool.shared.ring import Memory, Ring
from fastq.pool.shared.runner import Sort
from tests.pool.site import Site
from tests.waiting import PATIENCE_S


class Looks(Work):  # type: ignore[misc]  # final for fastq, not in itself
    """The work of a child, with something that happens once behind a look for a plain task."""

    then: Callable[[], object] | None = None
    sleeps = 0

    @property
    def next_is_plain(self) -> bool:
        found = super().next_is_plain
        if (then := self.then) is not None:
            self.then = None
            then()
        return found

    def fall_asleep(self, *, rings: bool = True) -> bool:
        self.sleeps += 1
        assert self.sleeps < 10, "it looks again and again"
        return super().fall_asleep(rings=rings)


class LoopSite(Site):
    """A child with an event loop, in this process."""

    on_drained: Callable[[], object] | None = None

    def __init__(self) -> None:
        super().__init__(lambda data, context: None)
        shape = Layout(2, 1 << 16, threads=1)
        self.buffer = bytearray(shape.size)
        memory = Memory(self.buffer)
        self.wake_fd = self.wakeup.read_fd
        self.tasks = Ring(memory, TASK_TAIL_AT, TASK_HEAD_AT, shape.task_ring_at, shape.ring_bytes)
        self.looks = Looks(memory, Memory(bytearray(PAGE)), shape, self, self)  # type: ignore[arg-type]
        self.coroutines = Coroutines(self.looks, Stage(memory), self, self, 1)  # type: ignore[arg-type]
        self.loop = self.coroutines.make_loop()
        self.gave_up: list[bool] = []
        self.loop.call_later(PATIENCE_S, self.give_up)

    def give_up(self) -> None:
        self.gave_up.append(True)
        self.coroutines._stop()

    def drain(self) -> None:
        """Consume a wake-up."""
        os.read(self.wake_fd, 8)


@pytest.fixture(name="site")
def site_fixture() -> Iterator[LoopSite]:
    made = LoopSite()
    yield made
    made.loop.close()
    made.wakeup.close()


def test_a_plain_task_that_comes_behind_a_look_is_not_left(site: LoopSite) -> None:
    site.looks.then = lambda: site.tasks.put(1, b"", kind=Sort.PLAIN)
    site.coroutines.serve()
    assert not site.gave_up


def test_no_coroutine_begins_once_the_loop_is_about_to_be_left(site: LoopSite) -> None:
    plain = site.tasks.put(1, b"", kind=Sort.PLAIN)

    def cancel() -> None:
        assert site.tasks.withdraw(plain)
        site.tasks.put(2, b"", kind=Sort.ASYNC)
        site.loop.call_soon(site.coroutines._take)

    site.looks.then = cancel
    site.coroutines.serve()
    assert site.tasks.take() == (2, Sort.ASYNC, b"")


def test_an_order_to_exit_waits_for_what_a_thread_has_just_ended(site: LoopSite) -> None:
    site.coroutines._done = site.loop.create_future()
    site.coroutines.threads.running[1] = None  # type: ignore[assignment]  # its end was sent, and not heard of here
    struct.pack_into("=I", site.buffer, COMMAND_AT, COMMAND_EXIT)
    site.coroutines._take()
    assert site.looks.sleeps == 0


def test_a_stop_as_the_loop_is_left_does_not_count_for_the_next_time(site: LoopSite) -> None:
    told: list[str] = []
    site.loop.set_exception_handler(lambda loop, about: told.append(about["message"]))
    plain = site.tasks.put(1, b"", kind=Sort.PLAIN)
    site.loop.call_soon(site.loop.stop)
    site.coroutines.serve()
    assert site.tasks.withdraw(plain)

    def put() -> None:
        site.tasks.put(2, b"", kind=Sort.PLAIN)
        site.coroutines._take()

    site.loop.call_soon(site.loop.call_soon, put)
    site.coroutines.serve()
    assert not told
    assert not site.gave_up
