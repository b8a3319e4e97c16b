"""The audit: what agrees is found to agree, and each thing that can be wrong is found and named."""

from collections.abc import Callable

import pytest

from fastq.demo.audit import audit
from fastq.demo.fates import KEPT, Fate
from fastq.demo.ledger import Ending, Run
from tests.demo.sample import LOTS, SECOND_NS, Sample, stored

LATER = Run(0, 2000 * SECOND_NS, 2001 * SECOND_NS, Ending.RETURNED)


def faults(sample: Sample) -> list[str]:
    return list(audit(sample.books, sample.before, sample.findings()).faults)


def test_what_adds_up_has_no_fault_and_every_fate_is_counted() -> None:
    sample = Sample()
    sample.books.refused = sample.books.duplicates = 4
    result = audit(sample.books, sample.before, sample.findings())
    assert result.faults == []
    assert result.found == sample.books.expected()
    assert result.found[Fate.TIMED_OUT] == 6
    assert result.found[Fate.DONE] == 8


def never_ran(sample: Sample) -> None:
    del sample.runs["steady-a"]


def ran_twice(sample: Sample) -> None:
    sample.runs["steady-a"].append(LATER)


def ran_once_too_often(sample: Sample) -> None:
    sample.runs["kept-a"].append(LATER)


def ran_an_attempt_again(sample: Sample) -> None:
    first, second = sample.runs["flaky-a"]
    sample.runs["flaky-a"] = [first, second._replace(retried=0)]


def did_not_fail(sample: Sample) -> None:
    sample.runs["flaky-a"] = [LATER]


def gone_after_a_failure(sample: Sample) -> None:
    del sample.states["a", "hopeless-a"]


def not_revoked(sample: Sample) -> None:
    sample.runs["withdrawn-a"] = [LATER]


def another_error(sample: Sample) -> None:
    sample.put("looping-a", "a", stored("archived", "ValueError: TaskTimeout"))


def another_state(sample: Sample) -> None:
    sample.put("kept-a", "a", stored("archived", "SkipRetry: no"))


def still_active(sample: Sample) -> None:
    sample.states["a", "steady-a"] = ["active", "lease"]


def half_moved(sample: Sample) -> None:
    sample.stored["a", "kept-a"] = stored("active")


def without_data(sample: Sample) -> None:
    del sample.stored["a", "hopeless-a"]


def in_two_states(sample: Sample) -> None:
    sample.states["a", "hopeless-a"].append("retry")


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (never_ran, "task steady-a (text:features, queue a) should be 'done', but is 'lost' after 0 runs"),
        (
            ran_twice,
            "task steady-a (text:features, queue a) should be 'done', but is 'failed, retried, done' after 2 runs",
        ),
        (
            ran_once_too_often,
            "task kept-a (text:features, queue a) should run 1 times, but ran 2 times: attempts [0, 0]",
        ),
        (
            ran_an_attempt_again,
            "task flaky-a (flaky:fingerprint, queue a) should run 2 times, but ran 2 times: attempts [0, 0]",
        ),
        (did_not_fail, "task flaky-a (flaky:fingerprint, queue a) should be 'failed, retried, done', but is 'done'"),
        (gone_after_a_failure, "task hopeless-a (fail:always, queue a) should be 'failed three times, archived', but"),
        (not_revoked, "task withdrawn-a (fail:revoke, queue a) should be 'raised RevokeTask, deleted', but is 'done'"),
        (another_error, "task looping-a (hang:loop, queue a) should be 'hung, timed out, archived', but is 'failed"),
        (another_state, "task kept-a (text:features, queue a) should be 'done, result kept and recomputed', but is"),
        (still_active, "task steady-a (text:features, queue a) should be 'done', but is 'left in Redis' after 1 runs"),
        (half_moved, "task kept-a (text:features, queue a) should be 'done, result kept and recomputed', but is 'left"),
        (without_data, "task hopeless-a (fail:always, queue a) should be 'failed three times, archived', but is 'left"),
        (in_two_states, "task hopeless-a (fail:always, queue a) should be 'failed three times, archived', but is"),
    ],
)
def test_a_task_with_another_end_is_named(spoil: Callable[[Sample], None], fault: str) -> None:
    sample = Sample()
    spoil(sample)
    [found] = faults(sample)
    assert found.startswith(fault)


@pytest.mark.parametrize("result", [None, b"{}"])
def test_a_result_that_is_not_what_comes_out_of_the_text_is_shown(result: bytes | None) -> None:
    sample = Sample()
    sample.put("kept-a", "a", stored("completed", result=result))
    [fault] = faults(sample)
    assert fault.startswith(f"task kept-a (text:features, queue a) has the result {result!r} instead of b'{{")


def test_a_delayed_task_that_is_too_early_is_named() -> None:
    sample = Sample()
    early = 500 * SECOND_NS - 1_000_000
    sample.runs["late-b"] = [Run(0, early, early, Ending.RETURNED)]
    assert faults(sample) == ["task late-b (text:features, queue b) began 0.001 s before its time"]


@pytest.mark.parametrize("counter", Sample().counts["a"]._fields)
def test_a_counter_that_is_one_off_is_named(counter: str) -> None:
    sample = Sample()
    right = getattr(sample.counts["b"], counter)
    sample.add_to("b", counter, 1)
    assert faults(sample) == [f"queue b: {counter} is {right + 1}, but should be {right}"]


def test_tasks_that_nobody_enqueued_are_named() -> None:
    sample = Sample()
    sample.put("stranger", "a", stored("archived"))
    sample.put("kept-a", "b", stored("completed"))
    sample.runs["ghost"] = [LATER]
    assert faults(sample) == [
        "task stranger is in queue a, but was not enqueued there",
        "task kept-a is in queue b, but was not enqueued there",
        "task ghost ran, but was not enqueued",
    ]


def test_data_and_locks_that_stay_behind_are_named() -> None:
    sample = Sample()
    sample.orphans.append(("a", "steady-a"))
    sample.locks.append("asynq:{a}:unique:t:0")
    assert faults(sample) == [
        "task steady-a (queue a) is in no state, but its data is still there",
        "the lock asynq:{a}:unique:t:0 is still held",
    ]


def test_what_went_wrong_at_the_enqueue_is_told() -> None:
    sample = Sample()
    sample.books.faults.append("task x was enqueued, although it is a duplicate")
    assert faults(sample) == sample.books.faults


def test_the_sample_has_a_task_of_every_lot() -> None:
    assert {order.lot for order in Sample().books.by_id.values()} == set(LOTS.values())
    assert KEPT in LOTS.values()
