"""The fetcher: how many queues it asks in one round trip, and what several calls of one queue may answer."""

from collections import Counter

from redis import Redis

from fastq.broker.operations.dequeue import MAX_BATCH_BYTES, NoTasks
from fastq.broker.operations.lease import Leased
from tests.broker.harness import QUEUE, QueueBench
from tests.server.actors.fetching import Pool, fetcher, fetcher_and_wakers, fill
from tests.server.harness import Bench, on_bench


def test_of_a_large_batch_three_of_many_queues_have_what_they_are_due_in_several(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        queues = {f"q{number}": 1 for number in range(9)}
        for queue in queues:
            fill(bench, queue, 300)
        pool = Pool(bench, room=270)
        made = fetcher(bench, pool, queues)
        seen: list[dict[str, int]] = []
        for _ in range(3):
            pool.taken.clear()
            await made.tick()
            await made.stop()  # what was brought is handed on
            seen.append(dict(Counter(queue for queue, _ in pool.taken)))
        assert [sorted(trip.values()) for trip in seen] == [[90] * 3] * 3
        assert {queue for trip in seen for queue in trip} == set(queues)
        pool.room = 90
        pool.taken.clear()
        await made.tick()
        assert Counter(queue for queue, _ in pool.taken) == dict.fromkeys(queues, 10)

    on_bench(db, url, test)


def test_a_queue_gets_later_what_it_had_not_for_the_last_of_its_calls(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fill(bench, "a", 10)
        fill(bench, "b", 100)
        pool = Pool(bench, room=40)
        made = fetcher(bench, pool, {"a": 1, "b": 1})
        made._mean_bytes["a"] = MAX_BATCH_BYTES / 10
        await made.tick()
        await made.stop()  # what was brought is handed on
        assert Counter(queue for queue, _ in pool.taken) == {"a": 10, "b": 20}, "a's second call found it empty"
        QueueBench(bench.db, queue="a").pend(*(f"later-{number}" for number in range(40)))
        made.ask_all()
        await made.tick()
        await made.stop()
        assert Counter(queue for queue, _ in pool.taken) == {"a": 35, "b": 35}

    on_bench(db, url, test)


def test_a_queue_that_was_empty_in_one_call_and_gave_tasks_in_the_next_does_not_rest(db: Redis, url: str) -> None:
    """Large messages take several calls in a round trip; work that came tells the waker not to wait."""

    async def test(bench: Bench) -> None:
        made, wakers = fetcher_and_wakers(bench, Pool(bench, room=4))
        waker = wakers[QUEUE]
        waker.arm()
        waker._delay_s, waker._delays = 1e9, True
        made._rest(QUEUE, NoTasks.EMPTY)
        made._note_tasks(QUEUE, 1, Leased([b"a"], [b"message"]))
        assert not waker.is_waiting
        assert not made._resting

    on_bench(db, url, test)
