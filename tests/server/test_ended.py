"""The way of ended tasks to the acker: at once, until the server stops; then those that go back wait for the others."""

from redis import Redis

from fastq.server.actors.acker import Acker
from fastq.server.ended import EndedTasks
from fastq.server.inflight.processor import requeued
from tests.server.harness import Bench, no_news, on_bench


def test_what_goes_back_during_the_shutdown_waits_and_goes_in_the_order_in_which_it_was_fetched(
    db: Redis, url: str
) -> None:
    async def test(bench: Bench) -> None:
        woken: list[int] = []
        acker = Acker(bench.writer, bench.in_flight, no_news)
        ended = EndedTasks(bench.tasks, acker, lambda: True, lambda: woken.append(1))
        a, b, c, before = map(requeued, bench.hold("a", "b", "c", "before"))
        ended.add([before])
        assert (acker.tasks(), len(woken)) == ({before}, 1)
        ended.keep_requeued()
        ended.add([c])
        ended.add([a, b])
        assert (acker.tasks(), len(woken)) == ({before}, 1)
        assert ended.tasks() == {a, b, c, before}, "the custodian must find them"
        await acker.tick()
        ended.release()
        await acker.tick()
        assert bench.queue.places() == {"pending": ["before", "c", "b", "a"]}, "the last one is the next to run"

    on_bench(db, url, test)
