"""A server on a cluster one of whose nodes is silent: its own queues wait, the others are served."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from fastq.broker.operations.finish import Done
from fastq.errors import BrokerError
from fastq.server.actors.acker import Acker
from fastq.server.actors.forwarder import Forwarder
from fastq.server.actors.per_node import PerNode
from fastq.server.actors.syncer import Syncer
from fastq.server.inflight.uncertain import DequeueCall
from fastq.wire import keys
from tests.broker.clusters import Cluster, expect_no_reply
from tests.broker.harness import NOW_S, OURS, QueueBench, run, until
from tests.redis_servers import RedisServer, redis_cluster
from tests.server.actors.fetching import Pool, fetcher
from tests.server.actors.test_heartbeater import heartbeater
from tests.server.harness import Bench, logged, no_news


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with redis_cluster() as nodes:
        yield Cluster(nodes)


class Site(NamedTuple):
    """Two queues of a server on two nodes of a cluster; the node of the first one is silent."""

    bench: Bench
    silent: QueueBench
    other: QueueBench
    node: RedisServer

    def speak(self) -> None:
        """Let the silent node go on."""
        self.node.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def site_on(cluster: Cluster, prepare: Callable[[QueueBench, QueueBench], None]) -> AsyncIterator[Site]:
    node, other = cluster.nodes[:2]
    (first,), (second,) = cluster.queues_on(node), cluster.queues_on(other)
    with node.client() as db, other.client() as other_db:
        site = Site(
            Bench(QueueBench(db), cluster.url), QueueBench(db, None, first), QueueBench(other_db, None, second), node
        )
        prepare(site.silent, site.other)
        await site.bench.commands.run_many([])
        await site.bench.broker.transport.place_of(keys.pending(first))  # so that the slot map is known
        node.process.send_signal(signal.SIGSTOP)
        try:
            yield site
        finally:
            site.speak()
            await site.bench.watch.close()
            await site.bench.broker.close()


def on_site(
    cluster: Cluster,
    test: Callable[[Site], Coroutine[None, None, None]],
    prepare: Callable[[QueueBench, QueueBench], None] = lambda *_: None,
) -> None:
    async def running() -> None:
        async with site_on(cluster, prepare) as site:
            await test(site)

    run(running)


def test_a_silent_node_does_not_keep_the_tasks_of_others_waiting(cluster: Cluster) -> None:
    async def test(site: Site) -> None:
        pool = Pool(site.bench, room=50)
        fetching = fetcher(site.bench, pool, {site.silent.queue: 1, site.other.queue: 1})
        fetching.start()
        for batch in range(1, 5):
            fill_other(site.other, batch)
            while len(pool.taken) < 10 * batch:
                fetching.ask_all()  # the answer "empty" to an earlier call may have come meanwhile
                await asyncio.sleep(0)
        assert {queue for queue, _ in pool.taken} == {site.other.queue}
        assert site.bench.in_flight.dequeues.may_bring(site.silent.queue), "it is being asked, and has not answered"
        site.speak()
        while len(pool.taken) < 45:
            fetching.ask_all()
            await asyncio.sleep(0)
        await fetching.stop()

    def fill_other(other: QueueBench, batch: int) -> None:
        other.pend(*(f"{batch}-{number}" for number in range(10)))

    on_site(cluster, test, lambda silent, _: silent.pend(*"abcde"))


def test_the_ends_of_tasks_on_other_nodes_are_written(cluster: Cluster) -> None:
    async def test(site: Site) -> None:
        acking = Acker(site.bench.writer, site.bench.in_flight, lambda: True, no_news, no_news)
        acking.start()
        held = [site.bench.add(task_id, queue.queue) for queue in (site.silent, site.other) for task_id in "ab"]
        for task in held:
            task.disposition = Done(task.id)
        acking.add([held[0], held[2]])
        await until(lambda: not held[2].in_flight)
        acking.add([held[1], held[3]])
        await until(lambda: not held[3].in_flight)
        assert acking.tasks() == {held[0], held[1]}
        assert held[0].in_flight
        site.speak()
        await until(lambda: not site.bench.in_flight_ids())
        await acking.stop()

    def prepare(silent: QueueBench, other: QueueBench) -> None:
        silent.activate(*"ab")
        other.activate(*"ab")

    on_site(cluster, test, prepare)


def test_ends_are_written_again_to_each_node_by_itself(cluster: Cluster) -> None:
    async def test(site: Site) -> None:
        syncing = Syncer(site.bench.writer, site.bench.in_flight)
        held = [site.bench.add(task_id, queue.queue) for queue in (site.silent, site.other) for task_id in "ab"]
        for task in held:
            task.disposition = Done(task.id)
        first, second, third, fourth = held
        site.bench.ends.add([first, third])
        await syncing.tick()
        await until(lambda: not third.in_flight)
        site.bench.ends.add([second, fourth])
        await syncing.tick()
        await until(lambda: not fourth.in_flight)
        assert syncing.is_writing
        assert site.bench.ends.waiting == [second], "the node is asked nothing more meanwhile"
        assert first.in_flight
        site.speak()
        await until(lambda: not syncing.is_writing)
        await syncing.tick()
        await until(lambda: not site.bench.in_flight_ids())
        await syncing.stop()

    def prepare(silent: QueueBench, other: QueueBench) -> None:
        silent.activate(*"ab")
        other.activate(*"ab")

    on_site(cluster, test, prepare)


def test_a_queue_whose_slots_move_is_not_asked_a_second_time_meanwhile(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(site: Site) -> None:
        moved: dict[str, str] = {}
        node_name_of = site.bench.commands.node_name_of
        assert node_name_of is not None
        site.bench.commands.node_name_of = lambda key: moved.get(key) or node_name_of(key)
        pool = Pool(site.bench, room=50)
        fetching = fetcher(site.bench, pool, {site.silent.queue: 1})
        await fetching.tick()
        await until(lambda: site.bench.in_flight.dequeues.may_bring(site.silent.queue))
        moved[keys.pending(site.silent.queue)] = "elsewhere"
        site.bench.clock.advance(1.0)  # room is no longer kept for the answer
        await fetching.tick()
        site.speak()
        await until(lambda: not fetching._per_node)
        await fetching.stop()
        assert sorted(pool.ids) == [*"abcde"]

    on_site(cluster, test, lambda silent, _: silent.pend(*"abcde"))
    assert logged(caplog) == []


def test_a_look_for_lost_tasks_does_not_keep_those_of_other_nodes_waiting(cluster: Cluster) -> None:
    lease = DequeueCall("", 10, str(NOW_S + 30 + OURS.fraction))

    async def test(site: Site) -> None:
        pool = Pool(site.bench, room=50)
        fetching = fetcher(site.bench, pool, {site.silent.queue: 1, site.other.queue: 1})
        site.bench.in_flight.dequeues.lose(lease._replace(queue=site.silent.queue), site.bench.clock.monotonic_s())
        fetching.start()
        await until(lambda: len(pool.taken) == 5)
        assert {queue for queue, _ in pool.taken} == {site.other.queue}
        site.speak()
        await until(lambda: len(pool.taken) == 7)
        await fetching.stop()

    def prepare(silent: QueueBench, other: QueueBench) -> None:
        silent.activate(*"ab")
        other.pend(*"abcde")

    on_site(cluster, test, prepare)


def test_what_the_acker_holds_for_a_silent_node_is_kept_when_it_ends(cluster: Cluster) -> None:
    async def test(site: Site) -> None:
        acking = Acker(site.bench.writer, site.bench.in_flight, lambda: True, no_news, no_news)
        acking.start()
        first, second = (site.bench.add(task_id, site.silent.queue) for task_id in "ab")
        for task in (first, second):
            task.disposition = Done(task.id)
        acking.add([first])
        await until(lambda: acking._per_node)
        acking.add([second])
        await until(lambda: acking._behind)
        await acking.finish(0.01)
        assert site.bench.ends.waiting == [first]
        assert acking.tasks() == {first, second}
        site.speak()
        await acking.flush()
        assert not second.in_flight

    on_site(cluster, test, lambda silent, _: silent.activate(*"ab"))


def test_due_tasks_on_other_nodes_are_forwarded_once_a_node_is_known_to_be_silent(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(site: Site) -> None:
        expect_no_reply(site.bench.broker.transport._transport()._cluster, site.node)  # type: ignore[attr-defined]  # this loop's
        queues = (site.silent.queue, site.other.queue)
        forwarding = Forwarder(site.bench.commands, queues, 5.0, site.bench.clock, site.bench.stats, lambda _: None)
        await forwarding.tick()
        for task_id in "ab":
            site.other.put(task_id, "scheduled")
            site.other.db.zadd(site.other.key("scheduled"), {task_id: NOW_S})
            forwarding.note_due(site.other.queue, NOW_S)
            site.bench.clock.advance(1.0)
            await forwarding.tick()
        assert site.other.places() == {"pending": ["b", "a"]}
        assert site.bench.outage
        await forwarding.stop()
        assert not site.bench.outage

    on_site(cluster, test)
    (said,) = logged(caplog)
    assert f"127.0.0.1:{cluster.nodes[0].port}" in said


def test_a_heartbeat_tells_an_outage_of_one_node_from_that_of_all(cluster: Cluster) -> None:
    async def test(site: Site) -> None:
        client = site.bench.broker.transport._transport()._cluster  # type: ignore[attr-defined]  # this loop's
        expect_no_reply(client, site.node)
        beating = heartbeater(site.bench)
        site.bench.add("a", site.silent.queue)
        site.bench.add("b", site.other.queue)
        with pytest.raises(BrokerError):
            await beating.tick()
        assert beating.is_answered
        for node in cluster.nodes[1:]:
            expect_no_reply(client, node)
            node.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(BrokerError):
                await beating.tick()
        finally:
            for node in cluster.nodes[1:]:
                node.process.send_signal(signal.SIGCONT)
        assert not beating.is_answered

    on_site(cluster, test)


def test_a_defect_in_the_work_for_a_node_is_logged_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        done = asyncio.Event()
        per_node = PerNode(lambda key: key[7], done.set, logging.getLogger("fastq.test"))
        assert per_node.split(["a1", "b1", "a2"], lambda item: item[0]) == {"a": ["a1", "a2"], "b": ["b1"]}

        async def fail() -> None:
            raise ValueError("a defect")

        per_node.begin("a", fail())
        per_node.begin("b", asyncio.Event().wait())  # type: ignore[arg-type]  # its result is of no interest
        await until(lambda: "a" not in per_node)
        assert per_node.busy(["a", "b"]) == {"b"}
        assert not done.is_set(), "who failed is not asked to go on at once"
        await per_node.stop()
        assert not per_node
        assert done.is_set()

    run(test)
    assert logged(caplog) == ["unexpected error at a; continuing"]
