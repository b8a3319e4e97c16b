"""The findings, in a Redis whose content is made by hand."""

from pathlib import Path

import pytest
from redis import Redis

from fastq import Client, Task
from fastq.broker.transport.open import open_broker
from fastq.demo.books import Books
from fastq.demo.fates import STEADY, UNIQUE
from fastq.demo.findings import Findings, find, read_counts
from fastq.demo.workload import Offer, Ordered
from fastq.wire import keys
from tests.demo.test_ledger import run


def nothing() -> None:
    pass


@pytest.fixture
def books(url: str) -> Books:
    """Enqueue 1200 plain tasks, more than are looked at in one go, and a unique one."""
    books = Books()
    offers = [Offer(Task("t", queue="a"), Ordered(STEADY, "a", "t")) for _ in range(1200)]
    locked = Task("t", queue="b", unique=60, unique_key="k")
    offers.append(Offer(locked, Ordered(UNIQUE, "b", "t", unique_key="k")))
    with Client(url) as client:
        for _ in books.enqueue(client, offers):
            pass
    return books


def found(url: str, books: Books, ledger: Path = Path("none")) -> Findings:
    return find(open_broker(url), books, ledger, nothing)


def test_every_task_is_found_in_its_state_with_its_data(url: str, db: Redis, books: Books) -> None:
    findings = found(url, books)
    assert findings.states == {(order.queue, task_id): ["pending"] for task_id, order in books.by_id.items()}
    assert {stored.state for stored in findings.stored.values()} == {"pending"}
    assert len(findings.stored) == 1201
    assert findings.orphans == []
    assert findings.counts["a"].pending == 1200


def test_a_task_in_several_states_is_found_in_each(url: str, db: Redis, books: Books) -> None:
    task_id = books.ids("b")[0]
    db.zadd(keys.lease("b"), {task_id: 1})
    db.zadd(keys.archived("b"), {"other": 1})
    findings = found(url, books)
    assert findings.states["b", task_id] == ["pending", "lease"]
    assert findings.states["b", "other"] == ["archived"]
    assert findings.stored["b", "other"].message is None


def test_data_without_a_state_is_found_among_a_thousand(url: str, db: Redis, books: Books) -> None:
    ids = books.ids("a")
    db.delete(keys.pending("a"), *(keys.task("a", task_id) for task_id in ids if task_id != ids[700]))
    assert found(url, books).orphans == [("a", ids[700])]


def test_a_lock_is_found_for_as_long_as_it_is_held(url: str, db: Redis, books: Books) -> None:
    lock = keys.unique_for_key("b", "t", "k")
    assert found(url, books).locks == [lock]
    db.delete(lock)
    assert found(url, books).locks == []


def test_the_ledger_is_read(url: str, books: Books, tmp_path: Path) -> None:
    run(tmp_path / "ledger", lambda task: None)
    assert len(found(url, books, tmp_path / "ledger").runs) == 1


def test_the_search_can_be_interrupted(url: str, books: Books) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find(open_broker(url), books, Path("none"), interrupt)


def test_counts_are_each_queues_own(url: str, db: Redis) -> None:
    db.rpush(keys.pending("b"), "x")
    counts = read_counts(open_broker(url), ["a", "b"])
    assert (counts["a"].pending, counts["b"].pending) == (0, 1)
