"""Back-pressure: a client waits, or is refused, while a queue has more pending tasks than it wants."""

import asyncio
import os
from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from redis import Redis

from fastq import AsyncClient, Client, EnqueueResults, QueueFullError, Sender, Task
from fastq.broker.operation import Operation, Receive, Send, Wait
from fastq.broker.transport.open import open_broker
from fastq.enqueueing.backlog import LOOK_EVERY_S, calling_with, max_pending_of
from fastq.enqueueing.bulk import enqueue_many
from fastq.enqueueing.producer import Producer
from fastq.errors import BrokerConnectionError
from tests.manual_clock import ManualClock
from tests.waiting import PATIENCE_S

PENDING = "asynq:{default}:pending"
T = TypeVar("T")


def idle(send: Sender[T]) -> Sender[T]:
    """Return the next sender as it is: a middleware of either client."""
    return send


def fill(db: Redis, count: int, queue: str = "default") -> None:
    db.lpush(f"asynq:{{{queue}}}:pending", *(f"of-others-{n}" for n in range(count)))


def tasks(count: int, **options: Any) -> Iterator[Task]:
    return (Task("t", n, **options) for n in range(count))


class Site:
    """A producer on a real Redis, whose waits pass on a manual clock while servers take some tasks."""

    def __init__(self, url: str, db: Redis, most: int | None = None, full_timeout: float | None = None) -> None:
        self.clock = ManualClock()
        self.producer = Producer(self.clock, max_pending_of(most, full_timeout))
        self.looks: list[float] = []
        self.waits: list[float] = []
        self.longest = 0
        self.taken = 0
        self._broker = open_broker(url)
        self._db = db

    def drive(self, flow: Generator[Any, Any, T], take: int = 0) -> T:
        """Run a flow; ``take`` tasks are taken from the queue during each wait."""
        answer: Any = None
        try:
            while True:
                step = flow.send(answer)
                answer = None
                if isinstance(step, Wait):
                    self.waits.append(step.seconds)
                    self.clock.advance(step.seconds)
                    for _ in range(take):
                        self.taken += self._db.rpop(PENDING) is not None
                elif isinstance(step, Operation):
                    self.looks.append(self.clock.monotonic_s())
                    answer = self._broker.run(step)
                elif isinstance(step, Send):
                    answer = self._broker.run_many(step.operations)
                elif isinstance(step, Receive):
                    answer = step.ticket
                    self.longest = max(self.longest, int(self._db.llen(PENDING)))
                elif isinstance(step, tuple):
                    answer = self._broker.run_many(step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            self._broker.close()


def test_any_number_of_tasks_streams_through_a_short_queue(url: str, db: Redis) -> None:
    site = Site(url, db, most=1000)
    results = site.drive(enqueue_many(site.producer, tasks(10_000), {}), take=700)
    assert results.enqueued == len(results) == 10_000
    assert site.longest < 1000 + 500
    assert site.taken + int(db.llen(PENDING)) == 10_000


def test_a_queue_is_looked_at_once_a_second_at_most(url: str, db: Redis) -> None:
    site = Site(url, db, most=1000)
    site.drive(enqueue_many(site.producer, tasks(10_000), {}), take=700)
    assert all(after - before >= LOOK_EVERY_S for before, after in zip(site.looks, site.looks[1:], strict=False))
    assert len(site.looks) == len(site.waits) + 1


def test_there_is_no_look_while_there_is_room(url: str, db: Redis) -> None:
    site = Site(url, db, most=100_000)
    site.drive(enqueue_many(site.producer, tasks(5000), {}))
    assert (len(site.looks), site.waits) == (1, [])


def test_a_chunk_is_no_larger_than_the_queue_may_be(url: str, db: Redis) -> None:
    site = Site(url, db, most=3)
    site.drive(enqueue_many(site.producer, tasks(10), {}), take=3)
    assert site.longest == 3


def test_one_task_waits_too(url: str, db: Redis) -> None:
    fill(db, 5)
    site = Site(url, db, most=5)
    info = site.drive(site.producer.enqueue(Task("t"), {}), take=1)
    assert (len(site.looks), site.waits) == (2, [LOOK_EVERY_S])
    assert info.id.encode() in db.lrange(PENDING, 0, -1)


def test_what_waits_for_its_time_or_its_group_needs_no_room(url: str, db: Redis) -> None:
    fill(db, 5)
    site = Site(url, db, most=5, full_timeout=0)
    site.drive(enqueue_many(site.producer, [*tasks(3, process_in=60), *tasks(3, group="g")], {}))
    assert (site.looks, site.waits) == ([], [])


def test_each_queue_has_room_of_its_own(url: str, db: Redis) -> None:
    fill(db, 5, "low")
    site = Site(url, db, most=5, full_timeout=0)
    with pytest.raises(QueueFullError) as raised:
        site.drive(enqueue_many(site.producer, [*tasks(2), *tasks(1, queue="low")], {}))
    assert raised.value.queue == "low"
    assert db.llen(PENDING) == 0


def test_it_waits_no_longer_than_it_may(url: str, db: Redis) -> None:
    fill(db, 5)
    site = Site(url, db, most=5, full_timeout=2.5)
    with pytest.raises(QueueFullError):
        site.drive(site.producer.enqueue(Task("t"), {}))
    assert site.waits == [1.0, 1.0, 0.5]


def test_calls_that_come_during_a_look_wait_for_its_answer(url: str, db: Redis) -> None:
    site = Site(url, db, most=5)
    first = site.producer.enqueue(Task("t"), {})
    assert isinstance(next(first), Operation)
    second = site.producer.enqueue(Task("t"), {})
    assert isinstance(next(second), Wait)
    assert not isinstance(first.send(4), Operation | Wait)  # it has the last place
    assert second.send(None) == Wait(LOOK_EVERY_S)


def test_a_look_that_fails_is_made_again(url: str, db: Redis) -> None:
    site = Site(url, db, most=5)
    first = site.producer.enqueue(Task("t"), {})
    next(first)
    with pytest.raises(QueueFullError):
        first.throw(QueueFullError())  # any error of a look
    assert isinstance(next(site.producer.enqueue(Task("t"), {})), Operation)


def test_a_look_that_is_canceled_is_made_again_though_the_call_is_remembered(url: str, db: Redis) -> None:
    async def test() -> None:
        client = AsyncClient(url, max_pending=5)
        try:
            canceled = asyncio.create_task(client.enqueue("t"))
            while not any(seen.asked_by for seen in client._producer.backlog._queues.values()):
                await asyncio.sleep(0)
            canceled.cancel()
            with pytest.raises(asyncio.CancelledError) as remembered:
                await canceled
            async with asyncio.timeout(PATIENCE_S):
                await client.enqueue("t")
            assert remembered.value.__traceback__ is not None
        finally:
            await client.close()

    asyncio.run(test())


def test_a_fork_asks_itself_while_its_parent_asks(url: str, db: Redis) -> None:
    site = Site(url, db, most=5)
    first = site.producer.enqueue(Task("t"), {})
    assert isinstance(next(first), Operation)
    if (pid := os.fork()) == 0:
        asks = False
        try:
            asks = isinstance(next(site.producer.enqueue(Task("t"), {})), Operation)
        finally:
            os._exit(0 if asks else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_look_without_an_answer_has_enqueued_nothing(url: str, db: Redis) -> None:
    site = Site(url, db, most=5)
    first = site.producer.enqueue(Task("t"), {})
    next(first)
    with pytest.raises(BrokerConnectionError) as failed:
        first.throw(BrokerConnectionError("no reply", maybe_applied=True))
    assert not failed.value.maybe_applied


# The clients ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["Client", "AsyncClient with middleware"])
def clients(request: pytest.FixtureRequest, url: str) -> Callable[..., Any]:
    """Return a function that makes a client and calls a method of it, without a middleware or through it."""

    async def call_async(settings: dict[str, Any], method: str, *args: Any, **options: Any) -> Any:
        async with AsyncClient(url, **settings) as client:
            client.use(idle)
            return await getattr(client, method)(*args, **options)

    def call(settings: dict[str, Any], method: str, *args: Any, **options: Any) -> Any:
        if request.param != "Client":
            return asyncio.run(call_async(settings, method, *args, **options))
        with Client(url, **settings) as client:
            return getattr(client, method)(*args, **options)

    return call


def test_a_full_queue_refuses_a_task_of_who_does_not_wait(clients: Callable[..., Any], db: Redis) -> None:
    fill(db, 5)
    with pytest.raises(QueueFullError) as raised:
        clients({"max_pending": 5, "full_timeout": 0}, "enqueue", "t")
    error = raised.value
    assert (error.queue, error.size, error.limit, error.transient, error.maybe_applied) == (
        "default",
        5,
        5,
        True,
        False,
    )
    assert str(error) == "queue is full: it has 5 pending tasks, and max_pending is 5 (queue='default')"
    assert db.keys("*") == [PENDING.encode()]


def test_the_error_of_many_tells_what_was_enqueued(clients: Callable[..., Any], db: Redis) -> None:
    with pytest.raises(QueueFullError, match="is full") as raised:
        clients({"full_timeout": timedelta(0)}, "enqueue_many", tasks(2000), max_pending=900)
    assert isinstance(raised.value.results, EnqueueResults)
    assert raised.value.results.enqueued == db.llen(PENDING) == 1000
    assert raised.value.__notes__[0].startswith("enqueue_many: 1000 tasks were enqueued before this")


def test_the_limit_of_a_call_replaces_that_of_the_client(clients: Callable[..., Any], db: Redis) -> None:
    fill(db, 5)
    settings = {"max_pending": 5, "full_timeout": 0}
    assert clients(settings, "enqueue_many", tasks(3), max_pending=10).enqueued == 3
    with pytest.raises(QueueFullError):
        clients(settings, "enqueue_many", tasks(3))


def test_submitted_tasks_wait_as_others(clients: Callable[..., Any], db: Redis) -> None:
    fill(db, 5)
    for method, what in (("submit", Task("t")), ("submit_many", [Task("t")])):
        with pytest.raises(QueueFullError):
            clients({"max_pending": 5, "full_timeout": 0}, method, what)


def test_the_wait_is_no_part_of_the_time_of_a_call(clients: Callable[..., Any], db: Redis) -> None:
    fill(db, 5)
    with pytest.raises(QueueFullError):  # not BrokerTimeoutError
        clients({"max_pending": 5, "full_timeout": 2.1, "timeout": 2}, "enqueue", "t")


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"max_pending": 0}, ValueError, "max_pending must be at least 1: 0"),
        ({"max_pending": True}, TypeError, "max_pending must be an int, not bool: True"),
        ({"max_pending": 1.5}, TypeError, "max_pending must be an int, not float: 1.5"),
        ({"full_timeout": -1}, ValueError, "full_timeout must not be negative: -1"),
        ({"full_timeout": "1s"}, TypeError, "full_timeout must be a timedelta or seconds, not '1s'"),
    ],
)
def test_bad_limits_are_refused(settings: dict[str, Any], error: type[Exception], text: str, url: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(error, match=text):
            kind(url, **settings)


def test_a_bad_limit_of_a_call_is_refused_before_a_task_is_taken(clients: Callable[..., Any], db: Redis) -> None:
    given = tasks(3)
    with pytest.raises(ValueError, match="max_pending must be at least 1: -5"):
        clients({}, "enqueue_many", given, max_pending=-5)
    assert len(list(given)) == 3
    assert db.keys("*") == []


def test_without_a_limit_nothing_is_asked(url: str, db: Redis) -> None:
    site = Site(url, db)
    site.drive(enqueue_many(site.producer, tasks(1000), {}))
    assert site.looks == []
    with calling_with(max_pending_of(5000, None)):
        site.drive(enqueue_many(site.producer, tasks(1000), {}))
    assert len(site.looks) == 1
