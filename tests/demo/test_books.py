"""The books: what was enqueued, what was refused, and what should not have been either."""

from collections import Counter

from redis import Redis

from fastq import Client, Task
from fastq.broker.inspect.tasks import list_ids
from fastq.broker.transport.open import open_broker
from fastq.common.states import TaskState
from fastq.demo.books import Books
from fastq.demo.fates import DUPLICATE, STEADY, UNIQUE, Fate
from fastq.demo.sweep import sweep
from fastq.demo.workload import Offer, Ordered, Workload

QUEUES = ["a", "b", "c"]


def locked() -> Task:
    return Task("t", queue="a", unique=60, unique_key="k")


def enqueued(url: str, *offers: Offer) -> Books:
    books = Books()
    with Client(url) as client:
        assert list(books.enqueue(client, offers))[-1] == len(books.by_id)
    return books


def test_what_is_in_redis_is_in_the_books(url: str, db: Redis) -> None:
    books, workload = Books(), Workload(6_000, 1, QUEUES)
    with Client(url) as client:
        assert list(books.enqueue(client, workload.first_wave())) == [5_000, 5_940]
        assert list(books.enqueue(client, workload.second_wave())) == [6_000]
    assert books.faults == []
    assert books.refused == books.duplicates == 50
    assert books.expected().total() == 6_050
    assert Counter(order.queue for order in books.by_id.values()) == dict.fromkeys(QUEUES, 2_000)
    for queue in QUEUES:
        broker = open_broker(url)
        of_queue = [
            broker.run(list_ids(queue, state, "", 0, 6_000)) for state in (TaskState.PENDING, TaskState.SCHEDULED)
        ]
        assert sorted(books.ids(queue)) == sorted(task_id.decode() for task_id in of_queue[0] + of_queue[1])


def test_a_sweep_leaves_what_is_not_the_demos(url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue("mine", queue="mine")
    before = set(db.scan_iter())
    books, workload = Books(), Workload(1_000, 1, QUEUES)
    with Client(url) as client:
        for _ in books.enqueue(client, workload.first_wave()):
            pass
    assert len(list(db.scan_iter())) > 900
    sweep(open_broker(url), books, QUEUES)
    assert set(db.scan_iter()) == before
    assert db.smembers("asynq:queues") == {b"mine"}


def test_a_duplicate_that_is_enqueued_is_a_fault(url: str) -> None:
    books = enqueued(url, Offer(locked(), Ordered(DUPLICATE, "a", "t")))
    [task_id] = books.by_id
    assert books.faults == [f"task {task_id} (t, queue a) was enqueued, although it is a duplicate"]
    assert books.refused == 0


def test_a_task_that_is_refused_is_a_fault(url: str) -> None:
    ordered = Ordered(UNIQUE, "a", "t", unique_key="k")
    books = enqueued(url, Offer(locked(), ordered), Offer(locked(), ordered))
    [fault] = books.faults
    assert "(t, queue a) was not enqueued: task already exists" in fault
    assert books.expected() == {Fate.DONE: 1}


def test_the_one_task_of_a_lot_is_found_by_its_name(url: str) -> None:
    other, one = Ordered(STEADY, "a", "t"), Ordered(UNIQUE, "a", "t")
    books = enqueued(url, Offer(Task("t", queue="a"), other), Offer(Task("t", queue="a"), one))
    assert books.by_id[books.the("unique")] is one
