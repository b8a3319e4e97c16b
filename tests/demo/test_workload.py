"""The workload: so many tasks, of so many sorts, the same from the same seed."""

from collections import Counter

import pytest

from fastq.demo.fates import DUPLICATE, KEPT, LATE, SINGLES, STEADY, UNIQUE, Fate
from fastq.demo.workload import WEIGHTS, Offer, Workload
from tests.manual_clock import ManualClock

QUEUES = list(WEIGHTS)
CLOCK = ManualClock(1_700_000_000.5)


def waves(tasks: int, seed: int = 1) -> tuple[list[Offer], list[Offer]]:
    workload = Workload(tasks, seed, QUEUES, CLOCK)
    return list(workload.first_wave()), list(workload.second_wave())


def described(offers: list[Offer]) -> list[object]:
    return [(offer.task.type, offer.task.payload, dict(offer.task.options), offer.ordered) for offer in offers]


@pytest.mark.parametrize("tasks", [1_000, 1_001, 2_345, 20_000])
def test_there_are_as_many_tasks_as_were_asked_for(tasks: int) -> None:
    first, second = waves(tasks)
    refused = [offer for offer in first if offer.ordered.lot is DUPLICATE]
    assert len(first) + len(second) - len(refused) == tasks
    assert {offer.ordered.lot for offer in second} == {LATE}


def test_every_fate_but_the_unexpected_is_ahead_of_some_task() -> None:
    first, _ = waves(1_000)
    assert {offer.ordered.lot.fate for offer in first} == set(Fate) - {Fate.LOST, Fate.LEFT}


def test_nearly_all_tasks_are_plain_work() -> None:
    first, _ = waves(100_000)
    fates = Counter(offer.ordered.lot.fate for offer in first)
    assert fates[Fate.DONE] + fates[Fate.KEPT] > 98_000
    assert fates[Fate.RETRIED] == 1_000
    assert fates[Fate.TIMED_OUT] == 3


def test_the_queues_get_a_third_each_and_not_what_their_weights_are() -> None:
    first, _ = waves(3_060)
    sizes = Counter(offer.ordered.queue for offer in first if offer.ordered.lot is not DUPLICATE)
    assert sizes == dict.fromkeys(QUEUES, 1_000)


def test_a_duplicate_is_in_all_the_same_as_an_earlier_task() -> None:
    first, _ = waves(2_000)

    def locks(offers: list[Offer]) -> list[object]:
        return [(offer.task.type, offer.task.options["queue"], offer.task.options["unique_key"]) for offer in offers]

    unique = [offer for offer in first if offer.ordered.lot is UNIQUE]
    duplicates = [offer for offer in first if offer.ordered.lot is DUPLICATE]
    assert locks(unique) == locks(duplicates)
    assert len(set(locks(unique))) == 20
    assert first[-20:] == duplicates


def test_tasks_that_hang_are_one_of_each() -> None:
    first, _ = waves(5_000)
    lots = Counter(offer.ordered.lot for offer in first)
    assert {lots[lot] for lot, _, _ in SINGLES} == {1}


def test_delayed_tasks_are_due_on_a_second_that_is_to_come() -> None:
    first, second = waves(50_000)
    for offers, last in ((first, 1_700_000_006), (second, 1_700_000_003)):
        due = {offer.ordered.due_ns for offer in offers if offer.ordered.due_ns}
        assert due == {second * 10**9 for second in range(1_700_000_002, last + 1)}


def test_the_text_of_a_kept_task_is_remembered_alone() -> None:
    first, _ = waves(1_000)
    assert {offer.ordered.text == offer.task.payload for offer in first if offer.ordered.lot is KEPT} == {True}
    assert {offer.ordered.text for offer in first if offer.ordered.lot is STEADY} == {b""}


def test_a_seed_makes_the_same_workload_again_and_another_one_another() -> None:
    assert described(waves(1_000)[0]) == described(waves(1_000)[0])
    assert described(waves(1_000)[0]) != described(waves(1_000, seed=2)[0])


def test_too_few_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="tasks must be at least 1000: 999"):
        Workload(999, 1, QUEUES)
