import os

from fastq.pool.shared.layout import ROW_CANCELED, ROW_RUNNING, ROW_TIMED_OUT, Layout
from fastq.pool.shared.memory import Segment
from fastq.pool.shared.ring import Memory
from fastq.pool.shared.slots import Slots


def slots(rows: int = 3) -> Slots:
    return Slots(Memory(bytearray(Layout(rows, 4096).size)), rows)


def test_a_row_tells_what_runs_in_it() -> None:
    table = slots()
    table.start(1, 42, 1000, 2000)
    assert table.look(42) == (ROW_RUNNING, False, 1000, 2000)
    assert table.look(41) is None
    assert table.finish(1, 42) == ROW_RUNNING
    assert table.look(42) is None


def test_only_running_tasks_that_are_late_and_were_not_told_are_overdue() -> None:
    table = slots(4)
    table.start(0, 1, 0, 100)
    table.start(1, 2, 0, 101)
    table.start(2, 3, 0, 0)
    table.start(3, 4, 0, 50)
    assert table.overdue(100) == [1, 4]
    assert table.interrupt(4, ROW_TIMED_OUT)
    assert table.overdue(100) == [1]
    assert table.overdue(99) == []


def test_an_interruption_wins_over_an_end_that_comes_later() -> None:
    table = slots()
    table.start(0, 5, 0, 0)
    assert table.interrupt(5, ROW_CANCELED)
    assert not table.interrupt(5, ROW_TIMED_OUT)
    assert table.finish(0, 5) == ROW_CANCELED
    assert table.look(5) is None


def test_an_interruption_that_comes_too_late_hits_nothing() -> None:
    table = slots()
    table.start(0, 5, 0, 0)
    table.finish(0, 5)
    table.start(0, 6, 0, 0)
    assert not table.interrupt(5, ROW_CANCELED)
    assert table.finish(0, 6) == ROW_RUNNING


def test_a_coroutine_hears_of_its_interruption_once() -> None:
    table = slots()
    table.start(2, 9, 0, 0)
    assert not table.see(2, 9)
    table.interrupt(9, ROW_TIMED_OUT)
    assert table.see(2, 9)
    assert not table.see(2, 9)
    assert table.look(9) == (ROW_TIMED_OUT, True, 0, 0)
    assert table.finish(2, 9) == ROW_TIMED_OUT


def test_end_and_interruption_of_two_processes_agree() -> None:
    """Each task is either ended or interrupted first, and both sides know the same."""
    total = 100_000
    segment, states = Segment.create(Layout(1, 4096).size), Segment.create(total + 1)
    pid = os.fork()
    if pid == 0:
        table = Slots(Memory(segment.memory), 1)
        for seq in range(1, total + 1):
            table.start(0, seq, 0, 1)
            if seq % 64 == 0:
                os.sched_yield()  # now and then leave the other side the time to be first
            while seq % 5000 == 0 and table.look(seq) == (ROW_RUNNING, False, 0, 1):
                os.sched_yield()  # and let it be first where the machine would not have it so
            states.memory[seq] = table.finish(0, seq)
        os._exit(0)
    table = Slots(Memory(segment.memory), 1)
    interrupted = []
    while not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        for _ in range(1000):
            interrupted += [seq for seq in table.overdue(1) if table.interrupt(seq, ROW_TIMED_OUT)]
    os.waitpid(pid, 0)
    assert len(interrupted) >= total // 5000
    told = bytes(states.memory[1:])
    assert [seq for seq, state in enumerate(told, 1) if state == ROW_TIMED_OUT] == interrupted
    assert told.count(ROW_RUNNING) == total - len(interrupted)
    segment.close_fd()
    states.close_fd()
