"""When a child rings: its own side of the rings in this process, the main process' side done by hand."""

import os
from collections.abc import Callable, Iterator

import pytest

from fastq.pool.child.work import NOTHING_LEFT, Work
from fastq.pool.main.wakeup import Wakeup
from fastq.pool.shared import layout
from fastq.pool.shared.layout import (
    BELL_ASLEEP,
    BELL_AT,
    BELL_AWAKE,
    PAGE,
    RESULT_HEAD_AT,
    RESULT_TAIL_AT,
    TASK_HEAD_AT,
    TASK_TAIL_AT,
)
from fastq.pool.shared.ring import Memory, Ring
from fastq.pool.shared.runner import Answer, TaskContext
from tests.pool.without_batches import WithoutBatches

SHAPE = layout.Layout(4, 1 << 16)


class Site(WithoutBatches):
    """A child that runs in the test, which is its runner and host, too; the main process sleeps."""

    has_plain, has_async, description = True, False, ""
    child_start = child_stop = ()
    max_memory = 0
    loop = None

    def __init__(self) -> None:
        memory, self.bell = Memory(bytearray(SHAPE.size)), bytearray(PAGE)
        self.wakeup = Wakeup.create()
        self.ring_fd = self.wakeup.write_fd
        self.tasks = Ring(memory, TASK_TAIL_AT, TASK_HEAD_AT, SHAPE.task_ring_at, SHAPE.ring_bytes)
        self.results = Ring(memory, RESULT_TAIL_AT, RESULT_HEAD_AT, SHAPE.result_ring_at, SHAPE.ring_bytes)
        self.work = Work(memory, Memory(self.bell), SHAPE, self, self)
        self.given = 0
        self.seen: list[bool] = []
        self.at_task: dict[int, Callable[[TaskContext], object]] = {}
        self.sleep_main()

    def sleep_main(self) -> None:
        self.bell[BELL_AT] = BELL_ASLEEP

    def rang(self) -> bool:
        """Return whether it rang since the last look; the main process sleeps again."""
        try:
            os.read(self.wakeup.read_fd, 8)
        except BlockingIOError:
            return False
        assert self.bell[BELL_AT] == BELL_AWAKE
        self.sleep_main()
        return True

    def give(self, count: int, kind: int = 0) -> list[int]:
        """Give it tasks; return their positions."""
        self.given += count
        return [self.tasks.put(seq, b"x" * 50, kind) for seq in range(self.given - count + 1, self.given + 1)]

    def run(self, data: bytes, context: TaskContext) -> Answer:
        """Run a task: note whether it rang since the one before."""
        self.seen.append(self.rang())
        if (do := self.at_task.get(len(self.seen))) is not None:
            do(context)
        return None

    def work_off(self) -> list[bool]:
        """Run what there is, until the child sleeps; return before which tasks, and at the end, it rang."""
        while self.work.run() == NOTHING_LEFT and not self.work.fall_asleep():
            pass
        self.work.wake_up()
        return [*self.seen, self.rang()]

    async def run_async(self, data: bytes, context: TaskContext) -> Answer:
        raise NotImplementedError

    def receive_segment(self, wanted: bool) -> bytes:
        raise NotImplementedError

    def send_segment(self, data: bytes, number: int) -> None:
        raise NotImplementedError

    def sleep(self) -> None:
        raise NotImplementedError

    def pause(self) -> None:
        raise NotImplementedError

    def rss(self) -> int:
        return 0


@pytest.fixture(name="site")
def site_fixture() -> Iterator[Site]:
    made = Site()
    yield made
    made.wakeup.close()


def where(rang: list[bool]) -> list[int]:
    """Return after how many tasks it rang."""
    return [number for number, one in enumerate(rang) if one]


@pytest.mark.parametrize(("count", "rings"), [(1, [1]), (2, [2]), (3, [2, 3]), (9, [6, 9]), (99, [66, 99])])
def test_a_child_rings_when_a_third_is_left_and_when_it_has_run_dry(site: Site, count: int, rings: list[int]) -> None:
    site.give(count)
    assert where(site.work_off()) == rings
    assert [site.results.take() is not None for _ in range(count + 1)] == [True] * count + [False]


def test_a_child_that_is_given_more_in_time_does_not_ring(site: Site) -> None:
    for number in (3, 6, 9):
        site.at_task[number] = lambda _: site.give(3)
    site.give(9)
    assert where(site.work_off()) == [15, 18]


def test_a_child_whose_tasks_are_withdrawn_rings_before_it_sleeps(site: Site) -> None:
    positions = site.give(8)
    site.at_task[1] = lambda _: [site.tasks.withdraw(position) for position in positions[1:]]
    assert where(site.work_off()) == [1]


def test_a_result_that_a_handler_writes_rings_at_once(site: Site) -> None:
    rang: list[bool] = []

    def write(context: TaskContext) -> None:
        context.write_result(b"half of it")
        rang.append(site.rang())

    site.at_task[1] = write
    site.give(9)
    assert where(site.work_off()) == [6, 9]
    assert rang == [True]


def test_the_end_of_a_task_that_somebody_waits_for_rings_at_once(site: Site) -> None:
    site.give(1)
    site.give(1, layout.TASK_AWAITED)
    site.give(7)
    assert where(site.work_off()) == [2, 6, 9]


def test_the_ends_of_many_tasks_that_somebody_waits_for_ring_like_others(site: Site) -> None:
    site.give(9, layout.TASK_AWAITED)
    assert where(site.work_off()) == [6, 9]


def test_nobody_rings_for_a_main_process_that_is_awake(site: Site) -> None:
    site.bell[BELL_AT] = BELL_AWAKE
    site.give(8)
    assert where(site.work_off()) == []
