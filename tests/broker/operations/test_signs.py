"""Signs of life: who has given none for a while is told, by the clock of Redis alone."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from redis import Redis

from fastq.broker.operations.lease import Owner
from fastq.broker.operations.signs import (
    FORGET_S,
    ServerFacts,
    Signed,
    SilentServer,
    connected,
    forget_signer,
    identify,
    sign,
    withdraw_sign,
)
from fastq.wire import keys
from tests.broker.harness import NOW_S, OURS, THEIRS, QueueBench, queue_bench

FACTS = ServerFacts("host:1:id", ("default",), 7, "run", "host", "boot", "namespace", 1, "22", float(NOW_S), 30)


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def age(bench: QueueBench, owner: Owner, seconds: float) -> None:
    """Let the last sign of a server be older."""
    bench.db.zincrby(keys.signs(), -1000 * seconds, str(owner))


def test_a_server_that_gives_no_sign_is_told_with_what_it_has_told(bench: QueueBench) -> None:
    assert bench.run(sign(THEIRS, FACTS, 6.0, 10)) == Signed(0, [])
    assert bench.run(sign(OURS, replace(FACTS, name="ours"), 6.0, 10)).silent == []
    age(bench, THEIRS, 6)
    (silent,) = bench.run(sign(OURS, replace(FACTS, name="ours"), 6.0, 10)).silent
    assert (silent.owner, silent.facts, silent.data) == (THEIRS, FACTS, FACTS.encode())
    assert 6 <= silent.silent_s < 60


def test_all_others_are_told_to_who_asks_for_no_silence(bench: QueueBench) -> None:
    for owner in (Owner(0.25), Owner(0.5), OURS):
        bench.run(sign(owner, FACTS, 6.0, 10))
    age(bench, Owner(0.5), 1)
    assert [one.owner for one in bench.run(sign(OURS, FACTS, 0.0, 10)).silent] == [Owner(0.5), Owner(0.25)]
    assert [one.owner for one in bench.run(sign(OURS, FACTS, 0.0, 1)).silent] == [Owner(0.5)]


def test_a_server_that_is_silent_for_long_is_forgotten(bench: QueueBench) -> None:
    bench.run(sign(THEIRS, FACTS, 6.0, 10))
    age(bench, THEIRS, FORGET_S + 1)
    assert bench.run(sign(OURS, FACTS, 6.0, 10)).silent == []
    assert bench.db.zrange(keys.signs(), 0, -1) == bench.db.hkeys(keys.signers()) == [str(OURS).encode()]


def test_current_servers_are_counted_gos_included(bench: QueueBench) -> None:
    bench.db.zadd(keys.all_servers(), {"go": NOW_S + 5, "fastq": NOW_S + 1, "gone": NOW_S - 1})
    assert bench.run(sign(OURS, FACTS, 6.0, 10)).servers == 2


def test_both_keys_expire_with_the_last_server(bench: QueueBench) -> None:
    bench.run(sign(OURS, FACTS, 6.0, 10))
    assert 3000 < bench.db.ttl(keys.signs()) <= 3600
    assert 3000 < bench.db.ttl(keys.signers()) <= 3600


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format":2}', FACTS.encode()[:-1], b'{"format":1,"name":"x"}'])
def test_what_a_later_version_tells_is_passed_over(data: bytes, bench: QueueBench) -> None:
    bench.db.hset(keys.signers(), str(THEIRS), data)
    bench.db.zadd(keys.signs(), {str(THEIRS): 0})
    age(bench, THEIRS, -bench.db.time()[0] + 10)
    assert bench.run(sign(OURS, FACTS, 6.0, 10)).silent == []
    assert bench.db.hexists(keys.signers(), str(THEIRS))


def test_a_server_is_forgotten_only_if_it_has_given_no_sign_meanwhile(bench: QueueBench) -> None:
    bench.run(sign(THEIRS, FACTS, 6.0, 10))
    seen = SilentServer(THEIRS, 9.0, FACTS, FACTS.encode())
    bench.run(sign(THEIRS, replace(FACTS, wall_s=NOW_S + 2.0), 6.0, 10))
    assert not bench.run(forget_signer(seen))
    assert bench.db.zcard(keys.signs()) == bench.db.hlen(keys.signers()) == 1
    bench.run(sign(THEIRS, FACTS, 6.0, 10))
    assert bench.run(forget_signer(seen))
    assert not bench.db.exists(keys.signs(), keys.signers())


def test_a_server_that_ends_in_order_leaves_nothing(bench: QueueBench) -> None:
    bench.run(sign(OURS, FACTS, 6.0, 10))
    for operation in withdraw_sign(OURS):
        bench.run(operation)
    assert not bench.db.exists(keys.signs(), keys.signers())


def test_a_client_is_known_to_redis_while_it_is_connected(bench: QueueBench, url: str) -> None:
    other = Redis.from_url(url)
    asks_id, asks_run = identify()
    ours, theirs = bench.run(asks_id), other.client_id()
    assert bench.run(connected(ours, theirs)) == {ours, theirs}
    other.close()
    bench.db.client_kill_filter(_id=theirs)
    assert bench.run(connected(ours, theirs)) == {ours}
    assert bench.run(asks_run) == bench.db.info("server")["run_id"]


@pytest.mark.parametrize(
    ("told", "by"),
    [
        (b'"wall_s":4000000000.0', b'"wall_s":1e300'),
        (b'"wall_s":4000000000.0', b'"wall_s":"now"'),
        (b'"wall_s":4000000000.0', b'"wall_s":-1.0'),
        (b'"lease_s":30', b'"lease_s":1000000000'),
        (b'"lease_s":30', b'"lease_s":0'),
        (b'"pid":1', b'"pid":9000000000'),
        (b'"pid":1', b'"pid":-1'),
    ],
)
def test_what_no_server_would_tell_is_passed_over(told: bytes, by: bytes) -> None:
    assert ServerFacts.decode(FACTS.encode()) == FACTS
    assert told in FACTS.encode()
    assert ServerFacts.decode(FACTS.encode().replace(told, by)) is None


def test_a_mark_that_is_no_number_hides_no_other(bench: QueueBench) -> None:
    bench.run(sign(THEIRS, FACTS, 6.0, 10))
    bench.db.hset(keys.signers(), "x", FACTS.encode())
    bench.db.zadd(keys.signs(), {"x": bench.db.zscore(keys.signs(), str(THEIRS))})
    age(bench, THEIRS, 6)
    bench.db.zincrby(keys.signs(), -6000, "x")
    assert [one.owner for one in bench.run(sign(OURS, FACTS, 6.0, 10)).silent] == [THEIRS]
