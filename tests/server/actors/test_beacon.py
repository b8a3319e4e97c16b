"""The beacon: the tasks of a server that is gone come back in seconds, and nothing is taken from one that lives."""

import asyncio
import os
import re
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.lease import Owner
from fastq.broker.operations.signs import ServerFacts, Takeover, read_takeovers, sign
from fastq.broker.transport.own_line import OwnLine
from fastq.errors import BrokerOutOfMemoryError
from fastq.server.actors.beacon import Beacon
from fastq.server.actors.lost_tasks import LostTasks
from fastq.server.base.this_process import ProcessFacts
from fastq.server.inflight.stats import RepairKind
from fastq.wire import keys
from tests.broker.harness import NOW_S, QUEUE, THEIRS
from tests.redis_servers import redis_server
from tests.server.harness import RULES, Bench, logged, on_bench
from tests.waiting import until

TAKEOVER_S = 8.0
HERE = ProcessFacts("here", "boot", "namespace", os.getpid(), "1")
THERE = replace(HERE, host="there", pid=2)


class Processes:
    """This process, and those of its host that have ended."""

    facts = HERE

    def __init__(self, *gone: int) -> None:
        self._gone = gone

    def is_gone(self, other: ProcessFacts) -> bool | None:
        return other.pid in self._gone if other.host == HERE.host else None


def beacon(bench: Bench, *queues: str, gone: tuple[int, ...] = ()) -> Beacon:
    return Beacon(
        OwnLine(bench.broker.transport, keys.signs()),
        bench.commands,
        queues or (QUEUE,),
        "ours",
        Processes(*gone),
        bench.in_flight,
        takeover_s=TAKEOVER_S,
        lost=LostTasks(bench.commands, RULES, bench.clock, bench.stats),
        tell_servers=lambda count: None,
    )


class Other:
    """Another server: its connection, its signs and its leases."""

    def __init__(self, bench: Bench, url: str, process: ProcessFacts = THERE, owner: Owner = THEIRS) -> None:
        self._bench, self._process, self.owner = bench, process, owner
        self._db: Any = Redis.from_url(url)
        self.client_id = self._db.client_id()
        self.run_id = bench.db.info("server")["run_id"]

    async def sign(self, *queues: str) -> None:
        facts = ServerFacts(
            name="theirs",
            queues=queues or (QUEUE,),
            client_id=self.client_id,
            run_id=self.run_id,
            host=self._process.host,
            boot=self._process.boot,
            namespace=self._process.namespace,
            pid=self._process.pid,
            started=self._process.started,
            wall_s=float(NOW_S),
            lease_s=30,
        )
        await self._bench.broker.run(sign(self.owner, facts, 3600.0, 1))

    async def disconnect(self) -> None:
        self._db.close()
        await until(lambda: not self._bench.db.client_list(client_id=[self.client_id]))

    def fall_silent(self, seconds: float = TAKEOVER_S + 1) -> None:
        self._bench.db.zincrby(keys.signs(), -1000 * seconds, str(self.owner))


async def heard(bench: Bench, beacon: Beacon) -> None:
    """Let a beacon hear of Redis for longer than others may be silent."""
    for _ in range(6):
        await beacon.tick()
        bench.clock.advance(2)


def taken(bench: Bench) -> int:
    return bench.stats.repairs[RepairKind.RECOVERED]


# Who is gone -------------------------------------------------------------------------------------------------------


def test_the_tasks_of_a_process_of_this_host_that_has_ended_come_back_at_once(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        other = Other(bench, url, replace(HERE, pid=2))
        await other.sign()
        bench.queue.pend("waits")
        bench.queue.activate("b", "a", owner=THEIRS)
        bench.queue.activate("ours")
        first = beacon(bench, gone=(2,))
        await first.tick()
        await first.stop()
        assert bench.queue.places() == {"pending": ["waits", "a", "b"], "active": ["ours"], "lease": ["ours"]}
        assert taken(bench) == 2
        assert bench.queue.message("a").retried == 0
        assert bench.queue.task("a")["lost"] == b"1"
        assert bench.db.zrange(keys.signs(), 0, -1) == [str(bench.owner).encode()], "it is forgotten"
        kept = Takeover(float(NOW_S), "ours", "theirs", "its process has ended", QUEUE, 2)
        assert bench.queue.run(read_takeovers()) == [kept]
        assert bench.db.ttl(keys.takeovers()) > 80_000

    on_bench(db, url, test)
    assert logged(caplog) == [
        "queue default: 2 tasks were lost because server theirs is gone: its process has ended; "
        "they run again at once, no attempt charged: b, a"
    ]


def test_a_process_of_this_host_that_lives_loses_nothing_even_without_connection(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        other = Other(bench, url, replace(HERE, pid=2))
        await other.sign()
        await other.disconnect()
        other.fall_silent()
        bench.queue.activate("a", owner=THEIRS)
        ours = beacon(bench)
        await heard(bench, ours)
        await ours.stop()
        assert bench.queue.places() == {"active": ["a"], "lease": ["a"]}

    on_bench(db, url, test)


def test_a_server_elsewhere_is_gone_once_it_is_silent_and_its_connection_closed(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        other = Other(bench, url)
        await other.sign()
        bench.queue.activate("a", owner=THEIRS)
        ours = beacon(bench)
        await heard(bench, ours)
        other.fall_silent()
        await ours.tick()
        assert bench.queue.places() == {"active": ["a"], "lease": ["a"]}, "it is connected"
        await other.disconnect()
        await ours.tick()
        await ours.stop()
        assert bench.queue.places() == {"pending": ["a"]}

    on_bench(db, url, test)
    (said,) = logged(caplog)
    assert re.search(r"server theirs is gone: no sign of it for \d+ s, and its connection to Redis is closed", said)


def test_a_server_that_has_given_a_sign_lately_is_not_gone(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        other = Other(bench, url)
        await other.sign()
        await other.disconnect()
        other.fall_silent(TAKEOVER_S - 1)
        bench.queue.activate("a", owner=THEIRS)
        ours = beacon(bench)
        await ours.tick()
        bench.clock.advance(1)
        bench.queue.activate("b", owner=THEIRS)
        await ours.tick()
        await ours.stop()
        assert bench.queue.places() == {"active": ["b", "a"], "lease": ["a", "b"]}

    on_bench(db, url, test)


@pytest.mark.parametrize("what", ["it begins", "a gap", "a failure"])
def test_silence_counts_only_while_redis_has_answered_ourselves(what: str, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        other = Other(bench, url)
        await other.sign()
        await other.disconnect()
        bench.queue.activate("a", owner=THEIRS)
        ours = beacon(bench)
        if what == "a gap":
            await heard(bench, ours)
            bench.clock.advance(5)
        elif what == "a failure":
            await heard(bench, ours)
            bench.db.client_kill_filter(_id=ours._known.client_id)
        other.fall_silent()
        if not await ours.tick():
            await ours.tick()  # the connection was found closed
        for _ in range(3):
            bench.clock.advance(2)
            await ours.tick()
        bench.clock.advance(2)
        assert bench.queue.places() == {"active": ["a"], "lease": ["a"]}
        await ours.tick()
        await ours.stop()
        assert bench.queue.places() == {"pending": ["a"]}

    on_bench(db, url, test)


def test_a_client_of_another_run_of_redis_proves_nothing(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        other = Other(bench, url)
        other.run_id = "of another"
        await other.sign()
        await other.disconnect()
        other.fall_silent()
        bench.queue.activate("a", owner=THEIRS)
        ours = beacon(bench)
        await heard(bench, ours)
        await ours.stop()
        assert bench.queue.places() == {"active": ["a"], "lease": ["a"]}

    on_bench(db, url, test)


def test_a_server_that_has_extended_leases_since_its_last_sign_lives(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        other = Other(bench, url)
        await other.sign()
        await other.disconnect()  # and it may not connect again, for example because Redis has too many clients
        other.fall_silent()
        bench.queue.activate("a", owner=THEIRS, until_s=NOW_S + 30)
        bench.queue.activate("extended", owner=THEIRS, until_s=NOW_S + 33)
        ours = beacon(bench)
        await heard(bench, ours)
        assert bench.queue.places() == {"active": ["extended", "a"], "lease": ["a", "extended"]}
        bench.db.zadd(keys.lease(QUEUE), {"extended": THEIRS.score(NOW_S, 32)})  # after its last sign, before the next
        await ours.tick()
        await ours.stop()
        assert bench.queue.places() == {"pending": ["extended", "a"]}

    on_bench(db, url, test)


def test_an_answer_that_does_not_know_ourselves_proves_nothing(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        other = Other(bench, url)
        await other.sign()
        await other.disconnect()
        other.fall_silent()
        bench.queue.activate("a", owner=THEIRS)
        ours = beacon(bench)
        await ours.tick()
        ours._known = ours._known._replace(client_id=other.client_id)  # as a proxy may number its clients
        await heard(bench, ours)
        await ours.stop()
        assert bench.queue.places() == {"active": ["a"], "lease": ["a"]}

    on_bench(db, url, test)


# Our own leases ----------------------------------------------------------------------------------------------------


def test_a_refused_sign_leaves_the_connection_open_which_shows_that_we_live() -> None:
    async def test(bench: Bench) -> None:
        ours = beacon(bench)
        await ours.tick()
        bench.db.config_set("maxmemory", 1)
        with pytest.raises(BrokerOutOfMemoryError):
            await ours.tick()
        assert bench.db.client_list(client_id=[ours._known.client_id])
        bench.db.config_set("maxmemory", 0)
        bench.db.execute_command("ACL", "SETUSER", "default", "-time")
        await ours.tick()
        assert bench.db.client_list(client_id=[ours._known.client_id])
        await ours.stop()

    with redis_server() as server, server.client() as db:
        on_bench(db, server.url, test)


@pytest.mark.parametrize("what", ["a failure", "a gap"])
def test_a_server_whose_sign_is_late_trusts_its_leases_only_once_they_are_confirmed(what: str) -> None:
    async def test(bench: Bench) -> None:
        def trusts() -> bool:
            return not bench.stall.suspect

        ours = beacon(bench)
        await ours.tick()
        assert trusts(), "before its first sign nobody could take them, and to ask for the owner costs Redis a sixth"
        bench.clock.advance(2)
        await ours.tick()
        assert trusts()
        if what == "a gap":
            bench.clock.advance(4.5)
            await ours.tick()
        else:
            bench.db.config_set("maxmemory", 1)
            with pytest.raises(BrokerOutOfMemoryError):
                await ours.tick()
        assert not trusts()
        bench.stall.leases_confirmed(bench.clock.monotonic_s())
        assert trusts()
        await ours.stop()

    with redis_server() as server, server.client() as db:
        on_bench(db, server.url, test)


# What is taken -----------------------------------------------------------------------------------------------------


def test_leases_that_it_gave_after_it_came_back_are_left_alone(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bench: Bench) -> None:
        other = Other(bench, url)
        await other.sign()
        await other.disconnect()
        ours = beacon(bench)
        await heard(bench, ours)
        other.fall_silent(8)
        bench.queue.activate("old", owner=THEIRS, until_s=NOW_S + 32)
        take_all = ours._take_all

        async def come_back(*args: Any) -> int:
            bench.queue.activate("new", owner=THEIRS, until_s=NOW_S + 38)
            return await take_all(*args)

        monkeypatch.setattr(ours, "_take_all", come_back)
        await ours.tick()
        await ours.stop()
        assert bench.queue.places() == {"pending": ["old"], "active": ["new"], "lease": ["new"]}

    on_bench(db, url, test)


def test_many_tasks_come_back_in_their_order(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        await Other(bench, url, replace(HERE, pid=2)).sign()
        ids = [f"{number * 7919 % 350:03}" for number in range(350)]
        bench.queue.activate(*ids, owner=THEIRS)
        bench.queue.activate("large", owner=THEIRS, payload=bytes(300_000))
        first = beacon(bench, gone=(2,))
        await first.tick()
        await first.stop()
        assert bench.queue.places() == {"pending": ["large", *reversed(ids)]}
        assert taken(bench) == 351

    on_bench(db, url, test)


def test_only_queues_of_ours_are_taken_and_the_others_left_to_those_who_serve_them(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        await Other(bench, url, replace(HERE, pid=2)).sign(QUEUE, "not ours")
        bench.queue.activate("a", owner=THEIRS)
        first = beacon(bench, QUEUE, "not theirs", gone=(2,))
        await first.tick()
        assert bench.queue.places() == {"pending": ["a"]}
        bench.queue.activate("b", owner=THEIRS)
        await first.tick()
        await first.stop()
        assert bench.queue.places() == {"pending": ["a"], "active": ["b"], "lease": ["b"]}, "it is looked at once"
        assert str(THEIRS).encode() in bench.db.zrange(keys.signs(), 0, -1)

    on_bench(db, url, test)


def test_two_that_take_at_once_take_each_task_once(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        await Other(bench, url, replace(HERE, pid=2)).sign()
        bench.queue.activate(*(f"t{number:03}" for number in range(250)), owner=THEIRS)
        both = [beacon(bench, gone=(2,)) for _ in range(2)]
        await asyncio.gather(*(one.tick() for one in both))
        for one in both:
            await one.stop()
        assert taken(bench) == len(bench.queue.places()["pending"]) == 250
        assert {bench.queue.task(f"t{n:03}")["lost"] for n in range(250)} == {b"1"}

    on_bench(db, url, test)


# Rights ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lacks", "process"), [("client|list", THERE), ("info", THERE)])
def test_without_a_right_a_server_elsewhere_loses_nothing_before_its_leases_end(
    lacks: str, process: ProcessFacts, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        other = Other(bench, server.url, process)
        await other.sign()
        await other.disconnect()
        other.fall_silent()
        near = Other(bench, server.url, replace(HERE, pid=3), Owner(0.5))
        await near.sign()
        bench.queue.activate("a", owner=THEIRS)
        bench.queue.activate("b", owner=Owner(0.5))
        bench.db.execute_command("ACL", "SETUSER", "default", f"-{lacks}")
        ours = beacon(bench, gone=(3,))
        await heard(bench, ours)
        await ours.stop()
        assert bench.queue.places() == {"pending": ["b"], "active": ["a"], "lease": ["a"]}

    with redis_server() as server, server.client() as db:
        on_bench(db, server.url, test)
    said = [line for line in logged(caplog) if "wait until its leases have ended" in line]
    assert len(said) == 1


def test_a_server_that_may_give_no_sign_says_so_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        bench.db.execute_command("ACL", "SETUSER", "default", "-time")
        ours = beacon(bench)
        assert [await ours.tick() for _ in range(2)] == [60.0, 60.0]
        await ours.stop()

    with redis_server() as server, server.client() as db:
        on_bench(db, server.url, test)
    (said,) = logged(caplog)
    assert "'TIME'" in said
    assert "wait until its leases have ended" in said
