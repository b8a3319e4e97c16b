"""Repair: what a dead peer left half done is gone or repaired, and counted; what is whole is left alone."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.repair import ActiveRepair, LeaseRepair, repair_active, repair_lease
from fastq.broker.transport.open import open_broker
from fastq.errors import BrokerAuthError, BrokerError
from fastq.wire import keys
from tests.broker.harness import GOS, NOW_NS, NOW_S, QUEUE, THEIRS, QueueBench, message, queue_bench
from tests.redis_servers import RedisServer, redis_server


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


# Active -----------------------------------------------------------------------------------------------------------


def test_an_active_task_without_a_lease_gets_one_that_ends_now(bench: QueueBench) -> None:
    bench.activate("whole", owner=THEIRS)
    bench.activate("unleased")
    bench.db.zrem(keys.lease(QUEUE), "unleased")
    assert bench.run(repair_active(QUEUE, 0, 500, NOW_S)) == ActiveRepair(2, 1, 0)
    assert bench.places() == {"active": ["unleased", "whole"], "lease": ["unleased", "whole"]}
    # It is nobody's, so that any server, Go's too, recovers it.
    assert bench.scores("lease") == {"unleased": NOW_S, "whole": NOW_S + 30 + THEIRS.fraction}
    assert bench.run(repair_active(QUEUE, 0, 500, NOW_S + 9)) == ActiveRepair(2, 0, 0)
    assert bench.scores("lease")["unleased"] == NOW_S


def test_an_active_id_without_task_and_lease_is_dropped(bench: QueueBench) -> None:
    bench.activate("a", "dangling", "b")
    bench.db.zrem(keys.lease(QUEUE), "dangling")
    bench.db.delete(keys.task(QUEUE, "dangling"))
    assert bench.run(repair_active(QUEUE, 0, 500, NOW_S)) == ActiveRepair(3, 0, 1)
    assert bench.places() == {"active": ["b", "a"], "lease": ["a", "b"]}


def test_stretches_go_from_the_oldest_on_and_miss_nothing(bench: QueueBench) -> None:
    ids = [f"{number:02d}" for number in range(10)]
    bench.activate(*ids)
    bench.db.zrem(keys.lease(QUEUE), *ids[2:8])
    bench.db.delete(keys.task(QUEUE, "03"))
    assert bench.run(repair_active(QUEUE, 0, 4, NOW_S)) == ActiveRepair(4, 1, 1)
    # One was dropped, so the next stretch begins one earlier.
    assert bench.run(repair_active(QUEUE, 3, 4, NOW_S)) == ActiveRepair(4, 4, 0)
    assert bench.run(repair_active(QUEUE, 7, 4, NOW_S)) == ActiveRepair(2, 0, 0)
    assert bench.places()["lease"] == [*ids[2:3], *ids[4:8], *ids[:2], *ids[8:]]


def test_nothing_active_is_nothing_to_repair(bench: QueueBench) -> None:
    assert bench.run(repair_active(QUEUE, 0, 500, NOW_S)) == ActiveRepair(0, 0, 0)
    bench.activate("a")
    assert bench.run(repair_active(QUEUE, 1, 500, NOW_S)) == ActiveRepair(0, 0, 0)


# Lease ------------------------------------------------------------------------------------------------------------


def test_a_lost_task_goes_back_to_the_head_of_pending(bench: QueueBench) -> None:
    bench.activate("lost", until_s=NOW_S, owner=GOS)
    bench.db.delete(keys.active(QUEUE))
    bench.pend("waiting")
    assert bench.run(repair_lease(QUEUE, ["lost"], NOW_S, NOW_NS)) == LeaseRepair(1, 1)
    assert bench.places() == {"pending": ["waiting", "lost"]}
    assert bench.task("lost") == {"msg": message("lost"), "state": b"pending", "pending_since": str(NOW_NS).encode()}


@pytest.mark.parametrize("state", ["retry", "pending", "archived", "completed", "scheduled", "aggregating", ""])
def test_a_lease_of_a_task_that_is_elsewhere_is_just_dropped(state: str, bench: QueueBench) -> None:
    bench.db.zadd(keys.lease(QUEUE), {"a": 1})
    if state:
        bench.put("a", state)
    before = bench.task("a")
    assert bench.run(repair_lease(QUEUE, ["a"], NOW_S, NOW_NS)) == LeaseRepair(1, 1)
    assert bench.places() == {}
    assert bench.task("a") == before


def test_leases_of_active_tasks_and_those_that_have_not_ended_are_left_alone(bench: QueueBench) -> None:
    bench.activate("active", until_s=1, owner=GOS)
    bench.activate("extended", until_s=NOW_S + 1, owner=GOS)
    bench.db.lrem(keys.active(QUEUE), 0, "extended")
    before = (bench.places(), bench.states())
    assert bench.run(repair_lease(QUEUE, ["active", "extended", "nosuch"], NOW_S, NOW_NS)) == LeaseRepair(3, 0)
    assert (bench.places(), bench.states()) == before


@pytest.mark.parametrize("refused", ["rpush", "hset", "zrem"])
def test_a_lost_task_is_found_again_whatever_fails_while_it_is_repaired(
    refused: str, shared_server: RedisServer, bench: QueueBench
) -> None:
    bench.activate("lost", until_s=NOW_S, owner=GOS)
    bench.db.delete(keys.active(QUEUE))
    rules = [f"-{refused}"]
    bench.db.acl_setuser("w", enabled=True, passwords=["+p"], categories=["+@all"], commands=rules, keys=["*"])
    broker = open_broker(f"unix://w:p@{shared_server.socket_path}")
    try:
        with pytest.raises(BrokerAuthError):
            broker.run(repair_lease(QUEUE, ["lost"], NOW_S, NOW_NS))
    finally:
        broker.close()
        bench.db.acl_deluser("w")
    assert bench.places()["lease"] == ["lost"]
    bench.run(repair_lease(QUEUE, ["lost"], NOW_S, NOW_NS))
    assert set(bench.places()["pending"]) == {"lost"}
    assert bench.states() == {"lost": "pending"}


def test_a_pending_of_another_type_costs_no_lost_task_its_lease(bench: QueueBench) -> None:
    bench.activate("lost", until_s=NOW_S, owner=GOS)
    bench.db.delete(keys.active(QUEUE))
    bench.db.set(keys.pending(QUEUE), "no list")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        bench.run(repair_lease(QUEUE, ["lost"], NOW_S, NOW_NS))
    assert bench.scores("lease") == {"lost": NOW_S}
    assert bench.states() == {"lost": "active"}


def test_a_lease_whose_key_is_no_hash_is_dropped_and_holds_no_other_up(bench: QueueBench) -> None:
    bench.activate("lost", until_s=NOW_S, owner=GOS)
    bench.db.delete(keys.active(QUEUE))
    bench.db.zadd(keys.lease(QUEUE), {"odd": 1})
    bench.db.set(keys.task(QUEUE, "odd"), "not a hash")
    assert bench.run(repair_lease(QUEUE, ["odd", "lost"], NOW_S, NOW_NS)) == LeaseRepair(2, 2)
    assert bench.places() == {"pending": ["lost"]}


def test_a_lost_task_comes_back_where_redis_is_out_of_memory() -> None:
    """It can be run then, and its end frees memory."""
    with redis_server() as server, server.client() as db, queue_bench(db, server.url) as bench:
        bench.activate("lost", until_s=NOW_S, owner=GOS)
        bench.db.delete(keys.active(QUEUE))
        bench.db.config_set("maxmemory", 1)
        assert bench.run(repair_lease(QUEUE, ["lost"], NOW_S, NOW_NS)) == LeaseRepair(1, 1)
        assert bench.places() == {"pending": ["lost"]}
        assert bench.states() == {"lost": "pending"}


def test_a_call_passes_100_000_elements_of_active_at_most_and_says_how_far_it_came(bench: QueueBench) -> None:
    bench.db.lpush(keys.active(QUEUE), *(f"other-{number}" for number in range(30_000)))
    bench.db.zadd(keys.lease(QUEUE), {f"lost-{number}": 1 for number in range(5)})
    ids = [f"lost-{number}" for number in range(5)]
    assert bench.run(repair_lease(QUEUE, ids, NOW_S, NOW_NS)) == LeaseRepair(3, 3)
    assert bench.run(repair_lease(QUEUE, ids[3:], NOW_S, NOW_NS)) == LeaseRepair(2, 2)
    assert bench.db.zcard(keys.lease(QUEUE)) == 0


@pytest.mark.parametrize("refused", ["", "lset", "lrem"])
def test_ids_without_task_are_taken_off_the_middle_of_a_long_active(
    refused: str, shared_server: RedisServer, bench: QueueBench
) -> None:
    ids = [f"{number}" for number in range(3000)]
    bench.db.rpush(keys.active(QUEUE), *ids)
    kept = [*ids[:1200], *ids[1700:]]
    bench.db.zadd(keys.lease(QUEUE), dict.fromkeys(kept, NOW_S))
    rules = [f"-{refused}"] if refused else []
    bench.db.acl_setuser("w", enabled=True, passwords=["+p"], categories=["+@all"], commands=rules, keys=["*"])
    broker = open_broker(f"unix://w:p@{shared_server.socket_path}")
    repair = repair_active(QUEUE, 1300, 500, NOW_S)
    try:
        if refused == "lrem":
            with pytest.raises(BrokerAuthError):
                broker.run(repair)
            kept = ids
        else:
            assert broker.run(repair) == ActiveRepair(500, 0, 500)
    finally:
        broker.close()
        bench.db.acl_deluser("w")
    left: Any = bench.db.lrange(keys.active(QUEUE), 0, -1)
    assert [one.decode() for one in left] == kept


def test_an_id_whose_hash_has_no_message_is_dropped_as_one_without_task(bench: QueueBench) -> None:
    bench.activate("no-message", "odd")
    bench.db.delete(keys.lease(QUEUE), keys.task(QUEUE, "odd"))
    bench.db.hdel(keys.task(QUEUE, "no-message"), "msg")
    bench.db.set(keys.task(QUEUE, "odd"), "not a hash")
    assert bench.run(repair_active(QUEUE, 0, 500, NOW_S)) == ActiveRepair(2, 0, 2)
    assert bench.places() == {}
