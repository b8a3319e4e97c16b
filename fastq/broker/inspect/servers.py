"""Reads of servers with their tasks, schedulers with their entries, and cluster nodes."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from redis.crc import key_slot

from fastq.broker.operation import Flow, Operation, scripted, together
from fastq.broker.transport.replies import fields_of
from fastq.errors import BrokerError
from fastq.wire import keys

MOST_OF_CALL: Final = 256_000
MOST_OF_PAYLOAD: Final = 4_000
MOST_OF_SERVER: Final = 1_000_000
"""The most bytes of payloads that a fastq server publishes; a Go server publishes whole payloads."""


def read_servers(now_s: int) -> Flow[list[tuple[bytes, list[bytes], bytes | None]]]:
    """Read the ServerInfo, WorkerInfos and notice of each live server; remove servers that have long been silent.

    Only the beginnings of the payloads in WorkerInfos are read.
    """
    live = yield from _live_keys(keys.all_servers(), now_s)
    workers = yield from _live_keys(keys.all_workers(), now_s)
    found = yield from _read_each("GET", [*live, *map(keys.server_notice, live)], ())
    infos, notices = found[: len(live)], found[len(live) :]
    running = yield from _read_workers(workers)
    by_server = {_tag(key): values for key, values in zip(workers, running, strict=True)}
    return [
        (info, by_server.get(_tag(key), []), notice)
        for key, info, notice in zip(live, infos, notices, strict=True)
        if info is not None
    ]


def _read_workers(names: list[str]) -> Flow[list[list[bytes]]]:
    found: list[list[bytes]] = [[] for _ in names]
    unread: dict[int, tuple[int, Sequence[bytes]]] = dict.fromkeys(range(len(names)), (0, ()))
    while unread:
        asked = [(names[at], *some) for at, some in unread.items()]
        replies = yield from together(*(read_workers(*some) for some in asked))
        for at, (count, infos, left) in zip(list(unread), replies, strict=True):
            found[at] += infos
            unread[at] = (count, left)
        unread = {at: some for at, some in unread.items() if some[1]}
    return found


def read_workers(
    key: str, count: int = 0, ids: Sequence[bytes] = ()
) -> Operation[tuple[int, list[bytes], list[bytes]]]:
    """Read WorkerInfos of a server, all or those of ``ids``; return their number, those read, and the unread ids.

    ``count`` is the number that the first call returned; the length of each payload depends on it.
    """
    limits = (MOST_OF_CALL, MOST_OF_PAYLOAD, MOST_OF_SERVER)
    return scripted("read_workers", (key,), (*limits, count, *ids), _parse_workers, idempotent=True)


def _parse_workers(reply: list[Any]) -> tuple[int, list[bytes], list[bytes]]:
    count, infos, *rest = reply
    return count, rest[:infos], rest[infos:]


def read_scheduler_entries(now_s: int) -> Flow[list[bytes]]:
    """Read the entries of all live schedulers."""
    live = yield from list_schedulers(now_s)
    entries = yield from _read_each("LRANGE", live, (0, -1))
    return [entry for of_one in entries for entry in of_one]


def list_schedulers(now_s: int) -> Flow[list[str]]:
    """List the keys of all live schedulers; remove schedulers that have long been silent."""
    return _live_keys(keys.all_schedulers(), now_s)


def read_scheduler_ticks() -> Operation[dict[tuple[str, str], int]]:
    """Read the counters of ticks by outcome and type of task."""
    return Operation("HGETALL", (keys.scheduler_ticks(),), (), _tick_counts, idempotent=True)


def _tick_counts(reply: Any) -> dict[tuple[str, str], int]:
    found = {}
    for name, count in fields_of(reply).items():
        outcome, _, task_type = name.decode(errors="replace").partition(":")
        found[outcome, task_type] = int(count)
    return found


def _live_keys(index: str, now_s: int) -> Flow[list[str]]:
    live, forgotten = yield (
        Operation("ZRANGEBYSCORE", (index,), (now_s, "+inf"), idempotent=True),
        Operation("ZREMRANGEBYSCORE", (index,), ("-inf", now_s - 1), idempotent=True),
    )
    if isinstance(live, BrokerError):
        raise live
    del forgotten  # this error must not stop a user who may only read
    return [key.decode("utf-8", "surrogateescape") for key in live]


def _read_each(command: str, names: list[str], args: tuple[int, ...]) -> Flow[list[Any]]:
    """Read keys, each of which may be on another node."""
    return (yield from together(*(Operation(command, (name,), args, idempotent=True) for name in names)))


def _tag(key: str) -> str:
    return key[key.find("{") :]


def list_history(entry_id: str, start: int, count: int) -> Operation[list[bytes]]:
    """Read the times when a scheduler enqueued an entry's task, the latest first."""
    key = (keys.scheduler_history(entry_id),)
    return Operation("ZREVRANGE", key, (start, start + count - 1), idempotent=True)


class SlotRange(NamedTuple):
    """A range of a cluster's slots, and the nodes that serve it, the master first, as (id, host, port)."""

    first: int
    last: int
    nodes: list[tuple[str, str, int]]


def cluster_slots() -> Operation[list[SlotRange]]:
    """Read which nodes of a cluster have which slots; a ``BrokerError`` if Redis is not a cluster."""
    return Operation("CLUSTER", (), ("SLOTS",), _parse_slots, idempotent=True)


def _parse_slots(reply: list[Any]) -> list[SlotRange]:
    return [
        SlotRange(first, last, [(node[2].decode(), (node[0] or b"").decode(), node[1]) for node in nodes])
        for first, last, *nodes in reply
    ]


def slot_of(queue: str) -> int:
    """Return the cluster slot of a queue's keys."""
    return int(key_slot(keys.pending(queue).encode()))
