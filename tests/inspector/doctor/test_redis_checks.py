"""What is said of Redis itself: on a Redis with other settings, and of facts that none here has."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis, RedisError

from fastq.broker.inspect.redis_state import SlowCommand
from fastq.broker.inspect.registry import RegistryEntry
from fastq.broker.transport.open import open_broker
from fastq.errors import BrokerAuthError
from fastq.inspector.doctor.clocks import check_renewal, check_server_clocks
from fastq.inspector.doctor.examination import Order, Report, examine
from fastq.inspector.doctor.finding import Finding, Level, Refused
from fastq.inspector.doctor.redis_checks import check_redis
from fastq.inspector.doctor.slow import check_slow_commands
from fastq.inspector.doctor.vitals import Vitals
from tests.inspector.doctor.harness import sound
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import wait_until

NO = Refused("no permission")


@pytest.fixture
def own() -> Iterator[RedisServer]:
    """Run a server whose settings the test may change."""
    with redis_server() as server:
        yield server


def look(url: str) -> dict[str, Finding]:
    broker = open_broker(url)
    try:
        report: Report = broker.drive(examine(Order(time.time_ns)))
    finally:
        broker.close()
    return {finding.check: finding for finding in report.findings}


def seen(url: str, check: str) -> tuple[Level, str]:
    finding = look(url)[check]
    assert finding.level is Level.OK or (finding.why and finding.advice) or finding.level is Level.UNSEEN
    return finding.level, finding.seen


def test_persistence_is_told_of(own: RedisServer) -> None:
    with own.client() as db:
        assert seen(own.url, "persistence") == (Level.WARNING, "neither append-only file nor snapshots")
        db.config_set("save", "3600 1")
        assert seen(own.url, "persistence") == (Level.WARNING, "snapshots only (save 3600 1)")
        db.config_set("appendonly", "yes")
        assert seen(own.url, "persistence") == (Level.OK, "append-only file")


def test_writes_that_need_no_replica_are_told_of(own: RedisServer) -> None:
    assert "replicas" not in look(own.url)
    with redis_server() as replica, replica.client() as its, own.client() as db:
        db.config_set("repl-diskless-sync-delay", 0)
        db.config_set("port", port := free_port())
        its.replicaof("127.0.0.1", port)
        wait_until(lambda: its.info("replication")["master_link_status"] == "up")
        assert seen(own.url, "replicas") == (Level.WARNING, "writes need none of 1")
        db.config_set("min-replicas-max-lag", 3600)
        db.config_set("min-replicas-to-write", 1)
        # The replica knows of the link before its master takes it for up to date.
        wait_until(lambda: db.info("replication").get("min_slaves_good_slaves") == 1)
        assert seen(own.url, "replicas") == (Level.OK, "writes need 1 of 1")
        db.config_set("min-replicas-to-write", 2)
        assert seen(own.url, "replicas") == (Level.PROBLEM, "1 of 2 (min-replicas-to-write) are up to date")
        assert "replicas" not in look(replica.url)


def test_eviction_is_a_problem_once_it_may_happen(own: RedisServer) -> None:
    with own.client() as db:
        assert seen(own.url, "eviction") == (Level.OK, "noeviction")
        db.config_set("maxmemory-policy", "allkeys-lru")
        assert seen(own.url, "eviction") == (Level.WARNING, "allkeys-lru")
        db.config_set("maxmemory", "100mb")
        assert seen(own.url, "eviction") == (Level.PROBLEM, "allkeys-lru")


def test_what_was_evicted_is_told_of(own: RedisServer) -> None:
    ask: Any
    with own.client() as ask:
        ask.config_set("maxmemory-policy", "allkeys-random")
        ask.mset({f"k{n}": "x" * 1000 for n in range(2000)})
        ask.config_set("maxmemory", ask.info("memory")["used_memory"] - 500_000)
        wait_until(lambda: bool(ask.ping()) and ask.info("stats")["evicted_keys"] > 0)
        level, said = seen(own.url, "eviction")
        assert level is Level.PROBLEM
        assert " keys were evicted since the start" in said
        ask.config_set("maxmemory-policy", "noeviction")
        assert seen(own.url, "eviction")[0] is Level.WARNING


def test_a_redis_that_is_nearly_full_is_told_of(own: RedisServer) -> None:
    ask: Any
    with own.client() as ask:
        used = ask.info("memory")["used_memory"]
        ask.config_set("maxmemory", 100 * used)
        level, said = seen(own.url, "memory")
        assert level is Level.OK
        assert said.endswith(", maxmemory")
        ask.config_set("maxmemory", used)
        assert seen(own.url, "memory")[0] is Level.PROBLEM


def test_connections_that_were_refused_are_told_of(own: RedisServer) -> None:
    with own.client() as db, own.client() as second, own.client() as third:
        assert seen(own.url, "connections")[0] is Level.OK
        db.config_set("maxclients", 2)
        second.ping()
        # Redis answers and closes: whether the answer is read depends on whether the question was sent by then.
        with pytest.raises(RedisError, match=r"max number of clients|Broken pipe|Connection reset|closed by server"):
            third.ping()
        db.config_set("maxclients", 100)
        level, said = seen(own.url, "connections")
        assert level is Level.WARNING
        assert said.endswith(" were refused since the start")


def test_a_replica_is_a_problem(own: RedisServer) -> None:
    assert seen(own.url, "role") == (Level.OK, "master, 0 replicas")
    with own.client() as db:
        db.execute_command("REPLICAOF", "127.0.0.1", "1")
        assert seen(own.url, "role") == (Level.PROBLEM, "a replica, and cut off from its master")


def test_a_user_without_permissions_gets_what_he_may_see(own: RedisServer) -> None:
    url = own.url.replace("unix://", "unix://u:p@")
    with own.client() as db:
        sound(db)
        db.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-@dangerous", "-slowlog")
        found = look(url)
        for check in ("version", "role", "persistence", "memory", "eviction", "connections", "slow commands"):
            assert (found[check].level, found[check].seen) == (Level.UNSEEN, "not checked: no permission")
        assert found["clock"].level is Level.OK
        assert found["ids without task"].level is Level.OK
        db.execute_command("ACL", "SETUSER", "u", "-time", "-eval", "-evalsha", "-zrange")
        found = look(url)
        for check in ("clock", "server lists", "server clocks", "data formats", "served", "queue", "tasks"):
            assert (found[check].level, found[check].seen) == (Level.UNSEEN, "not checked: no permission"), check
        db.execute_command("ACL", "SETUSER", "u", "-smembers")
        assert look(url)["queues"].level is Level.UNSEEN
        with pytest.raises(BrokerAuthError):
            look(url.replace(":p@", ":wrong@"))


def vitals(cluster: dict[str, str] | Refused = NO, slow: list[SlowCommand] | Refused = NO, **facts: Any) -> Vitals:
    told = {"redis_version": "7.0.15", "role": "master", "aof_enabled": 0, **facts}
    info = {name: str(fact) for name, fact in told.items()}
    return Vitals(info, NO, NO, NO, slow, cluster, time.time(), 0.0, 0.0)


@pytest.mark.parametrize(
    ("facts", "check", "level", "seen"),
    [
        ({"redis_version": "6.0.16"}, "version", Level.PROBLEM, "Redis 6.0.16"),
        ({"redis_version": "6.2.0"}, "version", Level.OK, "Redis 6.2.0"),
        ({"redis_version": "10.0.0"}, "version", Level.OK, "Redis 10.0.0"),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.0"}, "version", Level.OK, "Valkey 8.1.0"),
        ({"loading": 1}, "role", Level.PROBLEM, "loading its data"),
        ({"connected_slaves": 1}, "role", Level.OK, "master, 1 replica"),
        ({"role": "slave", "master_link_status": "up"}, "role", Level.PROBLEM, "a replica"),
        ({"cluster": {"cluster_state": "ok", "cluster_known_nodes": "3"}}, "role", Level.OK, "cluster of 3 nodes; "),
        (
            {"cluster": {"cluster_state": "fail", "cluster_known_nodes": "3"}},
            "role",
            Level.PROBLEM,
            "cluster of 3 nodes, state fail",
        ),
        ({"rdb_last_bgsave_status": "err"}, "persistence", Level.PROBLEM, "saving failed: rdb_last_bgsave_status"),
        (
            {"aof_enabled": 1, "aof_last_write_status": "err"},
            "persistence",
            Level.PROBLEM,
            "saving failed: aof_last_write_status",
        ),
        ({}, "persistence", Level.WARNING, "append-only file off; snapshots not checked: no permission"),
        ({"used_memory": 90, "maxmemory": 100}, "memory", Level.WARNING, "90 B of 100 B, maxmemory: 90%"),
        ({"used_memory": 2048}, "memory", Level.OK, "2.0 kB"),
        (
            {"used_memory": 1, "used_memory_rss": 96, "total_system_memory": 100},
            "memory",
            Level.PROBLEM,
            "96 B of 100 B, the machine's memory: 96%",
        ),
        ({"connected_clients": 85, "maxclients": 100}, "connections", Level.WARNING, "85 of 100: 85%"),
        ({"connected_clients": 99, "maxclients": 100}, "connections", Level.PROBLEM, "99 of 100: 99%"),
        ({"connected_clients": 99}, "connections", Level.OK, "99"),
        ({"redis_version": ""}, "version", Level.UNSEEN, "not checked: INFO has no redis_version"),
        ({"role": ""}, "role", Level.UNSEEN, "not checked: INFO has no role"),
        ({"aof_enabled": ""}, "persistence", Level.UNSEEN, "not checked: INFO has no aof_enabled"),
        ({}, "memory", Level.UNSEEN, "not checked: INFO has no used_memory"),
        ({}, "eviction", Level.UNSEEN, "not checked: INFO has no maxmemory_policy"),
        ({}, "connections", Level.UNSEEN, "not checked: INFO has no connected_clients"),
    ],
)
def test_facts_are_judged(facts: dict[str, Any], check: str, level: Level, seen: str) -> None:
    (finding,) = [finding for finding in check_redis(vitals(**facts)) if finding.check == check]
    assert finding.level is level
    assert finding.seen == seen or (level is Level.OK and finding.seen.startswith(seen))


def test_old_and_foreign_slow_commands_are_not_told_of() -> None:
    now_s = int(time.time())
    slow = [SlowCommand(now_s - 4000, 50_000, "EVALSHA done", True), SlowCommand(now_s, 50_000, "KEYS", False)]
    assert check_slow_commands(vitals(slow=slow)).level is Level.OK
    finding = check_slow_commands(vitals(slow=[*slow, SlowCommand(now_s, 12_345, "EVALSHA abc", True)]))
    assert finding.seen == "1 in the last hour, the slowest EVALSHA abc with 12 ms"


def test_heartbeats_that_redis_takes_in_part_are_no_wrong_clock() -> None:
    """The list is not written any more, and the key of each server is."""
    known = vitals()
    now_s = known.redis_now_s
    stuck = RegistryEntry("servers", "asynq:servers:{host:1:stuck}", now_s - 21, 10_000)
    wrong = RegistryEntry("servers", "asynq:servers:{host:2:wrong}", now_s - 21, 10_000)
    later = [stuck._replace(ttl_ms=9_000), wrong._replace(expires_s=now_s - 16, ttl_ms=9_000)]
    clocks, heartbeats = check_renewal([stuck, wrong], later, known, 0.0, 6.0)
    assert (clocks.level, clocks.seen) == (Level.PROBLEM, "1 of 1 differ from Redis' clock")
    assert clocks.examples[0].startswith("host:2")
    assert (heartbeats.check, heartbeats.level, heartbeats.examples) == ("heartbeats", Level.PROBLEM, ("host:1",))


def test_a_doctor_that_was_suspended_takes_no_server_s_clock_for_wrong() -> None:
    known = vitals()
    beat = RegistryEntry("servers", "asynq:servers:{h:1:x}", known.redis_now_s + 60, 55_000)
    assert check_server_clocks([beat], known, 0.0).level is Level.WARNING
    assert check_server_clocks([beat], known, 5.0).level is Level.OK
    behind = RegistryEntry("servers", "asynq:servers:{h:1:x}", known.redis_now_s + 60, 65_000)
    assert check_server_clocks([behind], known, 5.0).level is Level.WARNING


def test_while_redis_loads_nothing_else_is_looked_at(db: Redis, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = open_broker(url)
    flow = examine(Order(time.time_ns))
    operation: Any = next(flow)
    assert operation.name == "INFO"
    with pytest.raises(StopIteration) as end:
        flow.send({**broker.run(operation), "loading": "1"})
    broker.close()
    (problem,) = end.value.value.of_level(Level.PROBLEM)
    assert problem.seen == "loading its data"
