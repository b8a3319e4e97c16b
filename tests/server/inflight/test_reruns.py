"""Tasks whose child was killed for another reason run again: how often, and what is charged."""

import pytest

from fastq.broker.operations.cancel import CancelAs
from fastq.broker.operations.finish import Archived, Retried
from fastq.pool.shared.event_kind import ANOTHER_TASK, EventKind
from fastq.wire.codec import decode_task_message
from tests.server.inflight.test_processor import Bench, on_crew


def test_a_task_is_run_again_free_of_charge_once_when_its_child_died_for_an_unknown_reason() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a")
        first = bench.submission("a")
        bench.tell((first, EventKind.RERUN, b""))
        second = bench.submission("a")
        assert second is not first
        assert bench.finished == []
        bench.tell((second, EventKind.RERUN, b""))
        (task,) = bench.finished
        assert isinstance(task.disposition, Retried)
        message = decode_task_message(task.disposition.message)
        assert message.retried == 1
        assert message.error_msg.startswith("WorkerCrashedError: its worker process was killed twice for")

    on_crew(test)


def test_a_task_does_not_pay_for_others_that_are_charged_unless_it_never_gets_through() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", retry=1, retried=1)
        bench.tell(("a", EventKind.RERUN, b""))
        for _ in range(99):
            bench.tell(("a", EventKind.RERUN, ANOTHER_TASK))
        assert bench.finished == []
        bench.tell(("a", EventKind.RERUN, ANOTHER_TASK))
        (task,) = bench.finished
        assert isinstance(task.disposition, Archived)
        message = decode_task_message(task.disposition.message)
        assert "WorkerCrashedError: its worker process was killed 101 times because of other tasks" in message.error_msg

    on_crew(test)


@pytest.mark.parametrize(
    ("data", "why"), [(ANOTHER_TASK, "because of another task in it"), (b"", "for a reason outside of this task")]
)
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_task_that_may_run_once_does_not_run_again_beside_one_its_child_was_killed_for(
    data: bytes, why: str, is_closed: bool
) -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", "unbegun", retry=0)
        running, waiting = bench.submission("a"), bench.submission("unbegun")
        bench.take_all()
        if is_closed:
            bench.processor.withdraw()
        bench.tell((running, EventKind.RERUN, data), (waiting, EventKind.RETURNED, b""))
        assert bench.ended() == [("a", "Archived"), ("unbegun", "Requeued")]
        disposition = bench.task("a").disposition
        assert isinstance(disposition, Archived)
        assert decode_task_message(disposition.message).error_msg == (
            f"WorkerCrashedError: its worker process was killed {why}; this task had begun, "
            "and with max_retry=0 it runs at most once"
        )

    on_crew(test)


def test_a_canceled_task_whose_child_was_killed_for_another_is_canceled() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", retry=0)
        bench.task("a").canceled = CancelAs.RETRY
        bench.tell(("a", EventKind.RERUN, ANOTHER_TASK))
        (task,) = bench.finished
        assert isinstance(task.disposition, Archived)
        assert decode_task_message(task.disposition.message).error_msg.startswith("TaskCanceled: ")

    on_crew(test)


def test_a_task_that_is_run_again_and_finds_no_child_does_not_go_back_to_its_queue() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a")
        bench.tell(("a", EventKind.RERUN, b""))
        bench.tell(("a", EventKind.RETURNED, b""))
        assert bench.finished == []
        bench.tell(("a", EventKind.RERUN, b""))
        assert bench.ended() == [("a", "Retried")]

    on_crew(test)


def test_a_task_whose_child_dies_for_another_at_the_end_goes_back_free_of_charge() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a")
        running = bench.submission("a")
        bench.tell((running, EventKind.RERUN, b""))
        bench.processor.withdraw()
        bench.tell((running, EventKind.RERUN, b""))
        assert ("a", "Requeued") in bench.ended()

    on_crew(test)
