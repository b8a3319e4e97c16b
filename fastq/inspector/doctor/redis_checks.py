"""Checks of Redis itself: version, persistence, memory, connections, its role in a replication or cluster."""

import re
from dataclasses import replace
from typing import Final

from fastq.inspector.doctor.finding import Finding, Level, Refused, unseen
from fastq.inspector.doctor.vitals import Vitals

NEEDED: Final = (6, 2)
FULL: Final = 0.95
NEARLY_FULL: Final = 0.80
SIZES: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def check_redis(vitals: Vitals) -> list[Finding]:
    """Check the facts of INFO."""
    if isinstance(vitals.info, Refused):
        names = "version", "role", "replicas", "persistence", "memory", "eviction", "connections"
        return [unseen(name, vitals.info.why) for name in names]
    # Each check is given with the field of INFO that it needs, since some managed Redis lack fields.
    checks = (
        ("version", "redis_version", _version),
        ("role", "role", _role),
        ("persistence", "aof_enabled", _persistence),
        ("memory", "used_memory", _memory),
        ("eviction", "maxmemory_policy", _eviction),
        ("connections", "connected_clients", _connections),
    )
    found = [
        check(vitals) if vitals.text(field) else unseen(name, f"INFO has no {field}") for name, field, check in checks
    ]
    return [*found, *_replicas(vitals)]


def _version(vitals: Vitals) -> Finding:
    is_valkey = bool(vitals.text("valkey_version"))
    seen = f"Valkey {vitals.text('valkey_version')}" if is_valkey else f"Redis {vitals.text('redis_version')}"
    found = re.match(r"(\d+)\.(\d+)", vitals.text("redis_version"))
    if found is None or (int(found[1]), int(found[2])) >= NEEDED:
        return Finding("version", Level.OK, seen)
    return Finding(
        "version",
        Level.PROBLEM,
        seen,
        why="scripts of fastq and asynq use commands that came with Redis 6.2",
        advice="update Redis to 6.2 or newer",
    )


def _role(vitals: Vitals) -> Finding:
    if vitals.number("loading"):
        return Finding(
            "role",
            Level.PROBLEM,
            "loading its data",
            why="it takes no commands until it has finished",
            advice="wait; INFO persistence says how long it will take (loading_eta_seconds)",
        )
    if not isinstance(vitals.cluster, Refused):
        return _cluster(vitals.cluster)
    replicas = vitals.number("connected_slaves") or 0
    if vitals.text("role") != "slave":
        return Finding("role", Level.OK, f"master, {replicas} replica{'' if replicas == 1 else 's'}")
    lost = "" if vitals.text("master_link_status") == "up" else ", and cut off from its master"
    return Finding(
        "role",
        Level.PROBLEM,
        f"a replica{lost}",
        why="servers and clients write; a replica refuses that, and what it shows may be old",
        advice="point the URL at the master, or at the sentinels: redis-sentinel://",
    )


def _replicas(vitals: Vitals) -> list[Finding]:
    """Check whether a master that has or needs replicas accepts writes without them."""
    there, least = vitals.number("connected_slaves") or 0, vitals.min_replicas
    if vitals.text("role") != "master" or not (there or least not in ("0", None)):
        return []
    if isinstance(least, Refused) or least is None:
        return [unseen("replicas", least.why if least else "no such setting")]
    good = vitals.number("min_slaves_good_slaves") or 0
    if good < int(least):
        seen = f"{good} of {least} (min-replicas-to-write) are up to date"
        why = "Redis refuses all writes until enough are (NOREPLICAS)"
        return [Finding("replicas", Level.PROBLEM, seen, why, "see the logs of the replicas, and INFO replication")]
    if int(least):
        return [Finding("replicas", Level.OK, f"writes need {least} of {there}")]
    return [
        Finding(
            "replicas",
            Level.WARNING,
            f"writes need none of {there}",
            why="a master that is cut off from its replicas takes tasks that are lost once one of them is promoted",
            advice="set min-replicas-to-write 1 and min-replicas-max-lag 2; see wait_replicas in docs/failover.md",
        )
    ]


def _cluster(facts: dict[str, str]) -> Finding:
    nodes = facts.get("cluster_known_nodes", "?").strip()
    if facts.get("cluster_state", "").strip() == "ok":
        return Finding("role", Level.OK, f"cluster of {nodes} nodes; the findings on Redis below are from one of them")
    return Finding(
        "role",
        Level.PROBLEM,
        f"cluster of {nodes} nodes, state {facts.get('cluster_state', '?').strip()}",
        why="the queues whose slots are on the failed part cannot be reached",
        advice="see CLUSTER NODES for the nodes that fail, and their logs",
    )


def _persistence(vitals: Vitals) -> Finding:
    failed = [
        name
        for name in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")
        if vitals.text(name) == "err"
    ]
    if failed:
        return Finding(
            "persistence",
            Level.PROBLEM,
            f"saving failed: {', '.join(failed)}",
            why="a restart loses what was not saved, and Redis may refuse all writes until saving works (MISCONF)",
            advice="see Redis' log, the free space of its disk, and its rights there",
        )
    if vitals.number("aof_enabled"):
        return Finding("persistence", Level.OK, "append-only file")
    if isinstance(vitals.save, Refused):
        seen = f"append-only file off; snapshots not checked: {vitals.save.why}"
        why = "without either, a restart of Redis loses all tasks"
    elif vitals.save:
        seen = f"snapshots only (save {vitals.save})"
        why = "a crash of Redis loses the tasks since the last snapshot, and runs again those that were done since"
    else:
        seen, why = "neither append-only file nor snapshots", "a restart of Redis loses all tasks"
    advice = "set appendonly yes (and appendfsync everysec), unless the tasks may be lost"
    return Finding("persistence", Level.WARNING, seen, why, advice)


def check_node_memory(vitals: Vitals, address: str, facts: dict[str, str]) -> Finding | None:
    """Check the memory of one node of a cluster; None if it is fine."""
    found = _memory(replace(vitals, info=facts))
    return None if found.level is Level.OK else replace(found, seen=f"{address}: {found.seen}")


def _memory(vitals: Vitals) -> Finding:
    used, most = vitals.number("used_memory") or 0, vitals.number("maxmemory") or 0
    limit = most or vitals.number("total_system_memory") or 0
    named = "maxmemory" if most else "the machine's memory"
    taken = used if most else vitals.number("used_memory_rss") or used
    seen = f"{_size(taken)} of {_size(limit)}, {named}" if limit else _size(used)
    share = taken / limit if limit else 0.0
    if share < NEARLY_FULL:
        return Finding("memory", Level.OK, seen)
    return Finding(
        "memory",
        Level.PROBLEM if share >= FULL else Level.WARNING,
        f"{seen}: {share:.0%}",
        why="a full Redis takes no tasks, and cannot record that tasks are done"
        if most
        else "without free memory the system kills Redis, or swaps, which is as bad",
        advice="fastq stats shows the queues that use it; shorten retentions, delete archived tasks, or add memory",
    )


def _eviction(vitals: Vitals) -> Finding:
    policy, evicted = vitals.text("maxmemory_policy") or "unknown", vitals.number("evicted_keys") or 0
    gone = f"; {evicted} keys were evicted since the start" if evicted else ""
    seen = f"{policy}{gone}"
    why = "a full Redis evicts arbitrary keys: tasks vanish, and their ids stay behind"
    if policy != "noeviction":
        is_limited = bool(vitals.number("maxmemory"))
        level = Level.PROBLEM if is_limited or evicted else Level.WARNING
        advice = "set maxmemory-policy noeviction; use another Redis for a cache"
        return Finding("eviction", level, seen, why, advice)
    if evicted:
        advice = "see below for ids without tasks; after their repair CONFIG RESETSTAT sets the count to 0"
        return Finding("eviction", Level.WARNING, seen, why, advice)
    return Finding("eviction", Level.OK, seen)


def _connections(vitals: Vitals) -> Finding:
    used, rejected = vitals.number("connected_clients") or 0, vitals.number("rejected_connections") or 0
    said = vitals.text("maxclients") or (vitals.max_clients if isinstance(vitals.max_clients, str) else "")
    most = int(said) if said.isdecimal() else 0
    seen = f"{used} of {most}" if most else f"{used}"
    share = used / most if most else 0.0
    if share < NEARLY_FULL and not rejected:
        return Finding("connections", Level.OK, seen)
    return Finding(
        "connections",
        Level.PROBLEM if share >= FULL else Level.WARNING,
        f"{seen}; {rejected} were refused since the start" if rejected else f"{seen}: {share:.0%}",
        why="clients and servers without a connection can neither enqueue nor work",
        advice="CLIENT LIST shows who holds them; raise maxclients (CONFIG RESETSTAT sets the count to 0)",
    )


def _size(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1024 and unit < len(SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {SIZES[unit]}" if unit else f"{count} B"
