"""EnqueueResults: a sequence that makes its items when they are asked for."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from redis import Redis

from fastq import Client, DuplicateTaskError, EnqueueOptions, EnqueueResults, Task, TaskIDConflictError, TaskInfo
from fastq.broker.operations.enqueue import EnqueueOutcome, error_of
from fastq.enqueueing.results import Texts
from fastq.errors import BrokerConnectionError

COUNT = 1203
"""More than two chunks."""


@pytest.fixture
def results(db: Redis, url: str) -> Iterator[EnqueueResults]:
    """Enqueue tasks of which number 7 is a duplicate and number 1100 has an id that is taken."""
    with Client(url) as client:
        client.enqueue("t", task_id="1100")
        client.enqueue("unique", task_id="holder", unique=60)
        tasks = [Task("t", b"%d" % n, task_id=f"{n}", headers={"n": f"{n}"}) for n in range(COUNT)]
        tasks[7] = Task("unique", None, task_id="7", unique=60)
        yield client.enqueue_many(tasks)


def ids_of(items: list[object]) -> list[str]:
    return [str(getattr(item, "id", None) or getattr(item, "task_id", None)) for item in items]


def test_length_and_count(results: EnqueueResults) -> None:
    assert len(results) == COUNT
    assert results.enqueued == COUNT - 2
    assert repr(results) == "<EnqueueResults: 1203 tasks, 1201 enqueued>"
    assert bool(results)
    assert not EnqueueResults()


@pytest.mark.parametrize("index", [0, 1, 6, 8, 499, 500, 501, 999, 1000, 1202])
def test_an_item_is_the_info_of_its_task(index: int, results: EnqueueResults) -> None:
    info = results[index]
    assert isinstance(info, TaskInfo)
    assert (info.id, info.payload, dict(info.headers)) == (f"{index}", b"%d" % index, {"n": f"{index}"})
    assert results[index - COUNT] == info
    assert results[index] == info, "asked again it is the same"


def test_an_item_may_be_an_error(results: EnqueueResults) -> None:
    duplicate, conflict = results[7], results[1100]
    assert isinstance(duplicate, DuplicateTaskError)
    assert isinstance(conflict, TaskIDConflictError)
    assert (duplicate.task_id, conflict.task_id, conflict.queue) == ("7", "1100", "default")


@pytest.mark.parametrize("index", [COUNT, COUNT + 5, -COUNT - 1])
def test_beyond_the_ends_is_an_index_error(index: int, results: EnqueueResults) -> None:
    with pytest.raises(IndexError, match=f"^result {index} of {COUNT}$"):
        results[index]


def test_an_empty_sequence_has_no_item() -> None:
    with pytest.raises(IndexError, match=r"^result 0 of 0$"):
        EnqueueResults()[0]
    with pytest.raises(IndexError, match=r"^result -1 of 0$"):
        EnqueueResults()[-1]


@pytest.mark.parametrize(
    "part", [slice(None), slice(495, 505), slice(-3, None), slice(None, None, -1), slice(1199, 9999), slice(5, 2)]
)
def test_a_slice_is_a_list(part: slice, results: EnqueueResults) -> None:
    assert ids_of(list(results[part])) == [f"{n}" for n in range(COUNT)][part]


def test_it_is_a_sequence(results: EnqueueResults) -> None:
    assert ids_of(list(results)) == [f"{n}" for n in range(COUNT)]
    assert ids_of(list(reversed(results)))[:2] == ["1202", "1201"]
    first = results[0]
    assert first in results
    assert results.index(first) == 0


def test_ids_are_those_of_all_tasks(results: EnqueueResults) -> None:
    assert list(results.ids()) == [f"{n}" for n in range(COUNT)]


def test_errors_come_with_their_index(results: EnqueueResults) -> None:
    assert [(at, type(error)) for at, error in results.errors()] == [
        (7, DuplicateTaskError),
        (1100, TaskIDConflictError),
    ]


def test_the_tasks_of_an_iterator_are_not_kept(db: Redis, url: str) -> None:
    with Client(url) as client:
        (info,) = client.enqueue_many(iter([Task("t", b"payload", headers={"a": "1"}, task_id="a", max_retry=3)]))
    assert isinstance(info, TaskInfo)
    assert (info.payload, dict(info.headers)) == (b"", {})
    assert (info.id, info.type, info.max_retry) == ("a", "t", 3)


def test_options_that_differ_come_back_with_each_task(db: Redis, url: str) -> None:
    deadlines = [datetime(year, 1, 1, tzinfo=UTC) for year in (1950, 2030, 2300)]  # beyond 32 bits, on both sides
    options: list[EnqueueOptions] = [
        {"deadline": deadline, "max_retry": at, "queue": f"q{at}", "retention": at * 10**9, "process_in": at * 60}
        for at, deadline in enumerate(deadlines)
    ]
    with Client(url) as client:
        infos = [
            info for info in client.enqueue_many([Task("t", **each) for each in options]) if isinstance(info, TaskInfo)
        ]
    assert [info.deadline for info in infos] == deadlines
    assert [(info.max_retry, info.queue) for info in infos] == [(0, "q0"), (1, "q1"), (2, "q2")]
    assert [info.retention.total_seconds() for info in infos] == [0, 10**9, 2 * 10**9]
    assert [info.state.value for info in infos] == ["pending", "scheduled", "scheduled"]


def test_a_generated_id_is_the_one_in_redis(db: Redis, url: str) -> None:
    with Client(url) as client:
        results = client.enqueue_many([Task("t"), Task("t")])
    stored: list[object] = list(reversed(db.lrange("asynq:{default}:pending", 0, -1)))
    assert [task_id.encode() for task_id in results.ids()] == stored


@pytest.mark.parametrize(
    "texts", [[], ["a"], ["", "", "a", ""], ["ü", "日本", "x" * 1000, "\N{SNAKE}"], [f"{n}" for n in range(500)]]
)
def test_texts_come_back(texts: list[str]) -> None:
    packed = Texts(texts)
    assert len(packed) == len(texts)
    assert [packed[at] for at in range(len(packed))] == texts


def test_an_outcome_stands_for_an_error_or_none() -> None:
    broken = BrokerConnectionError("cut")
    assert error_of(EnqueueOutcome.ENQUEUED, "q", "a") is None
    assert error_of(broken, "q", "a") is broken
    assert isinstance(error_of(EnqueueOutcome.DUPLICATE, "q", "a"), DuplicateTaskError)
    assert isinstance(error_of(EnqueueOutcome.ID_CONFLICT, "q", "a"), TaskIDConflictError)
