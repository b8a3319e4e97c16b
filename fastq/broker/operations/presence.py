"""Presence: the data that servers publish about themselves, and what their running tasks write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fastq.broker.operation import Flow, Operation, Word, scripted, together
from fastq.broker.operations.lease import Owner
from fastq.errors import InvalidMessageError
from fastq.wire import keys
from fastq.wire.notice import ServerNotice
from fastq.wire.records import decode_server_info

MAX_CALL_TASKS: Final = 500
MAX_CALL_BYTES: Final = 256_000

_ACTIVE: Final = "active"
"""asynq's word for a server that takes tasks; its word for a quiet one is "stopped"."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The identity of a server, which its keys contain."""

    host: str
    pid: int
    server_id: str

    @property
    def info_key(self) -> str:
        """Return the key of the string that holds its ServerInfo."""
        return keys.server_info(self.host, self.pid, self.server_id)

    @property
    def workers_key(self) -> str:
        """Return the key of the hash of its running tasks."""
        return keys.workers(self.host, self.pid, self.server_id)

    @property
    def notice_key(self) -> str:
        """Return the key of the string that holds its notice."""
        return keys.server_notice(self.info_key)


class ServerState(NamedTuple):
    """The encoded data that a server publishes: its ServerInfo, a WorkerInfo for each running task, and its notice."""

    info: bytes
    workers: Mapping[str, bytes]
    notice: bytes


def list_server(server: ServerIdentity, until_s: int) -> tuple[Operation[int], ...]:
    """Put a server on the lists of servers and workers, as current until a Unix second."""
    return (
        _add(keys.all_servers(), server.info_key, until_s),
        _add(keys.all_workers(), server.workers_key, until_s),
    )


def publish_server_state(server: ServerIdentity, state: ServerState, ttl_s: int) -> tuple[Operation[int], ...]:
    """Publish the data of a server for ``ttl_s`` seconds.

    Up to 500 tasks or 256 kB are sent in one call, as in asynq; the rest follows in calls of that size.
    """
    first, *others = _slices(state.workers) or [[]]
    listed = (server.info_key, server.workers_key, server.notice_key)
    return (
        _publish("write_server_state", listed, (ttl_s, state.info, state.notice, *first)),
        *(_publish("add_worker_state", listed[1:2], (ttl_s, *words)) for words in others),
    )


def count_servers(now_s: int) -> Operation[int]:
    """Count the servers, including Go's, whose published data is current."""
    return Operation("ZCOUNT", (keys.all_servers(),), (now_s, "+inf"), int, idempotent=True)


def _slices(workers: Mapping[str, bytes]) -> list[list[Word]]:
    """Return each id and its info in flat lists of bounded size; an info above the bound has a list of its own."""
    slices: list[list[Word]] = []
    size = 0
    for task_id, info in workers.items():
        size += len(info)
        if not slices or size > MAX_CALL_BYTES or len(slices[-1]) >= 2 * MAX_CALL_TASKS:
            slices.append([])
            size = len(info)
        slices[-1] += (task_id, info)
    return slices


def _publish(script: str, script_keys: tuple[str, ...], args: tuple[Word, ...]) -> Operation[int]:
    return scripted(script, script_keys, args, int, idempotent=True)


def clear_server_state(server: ServerIdentity) -> tuple[Operation[int], ...]:
    """Delete everything that a server has published."""
    return (
        Operation("ZREM", (keys.all_servers(),), (server.info_key,), int, idempotent=True),
        Operation("ZREM", (keys.all_workers(),), (server.workers_key,), int, idempotent=True),
        Operation("DEL", (server.info_key, server.workers_key, server.notice_key), (), int, idempotent=True),
    )


def write_result(queue: str, task_id: str, owner: Owner, result: bytes) -> Operation[bool]:
    """Store the result of a running task; False if the task is not the owner's any more."""
    return _write("write_result", queue, task_id, owner, result)


def save_checkpoint(queue: str, task_id: str, owner: Owner, message: bytes, lease_score: str) -> Operation[bool]:
    """Replace the message of a running task by one with its checkpoint, and extend its lease.

    False if the task is not the owner's any more.
    """
    return _write("save_checkpoint", queue, task_id, owner, message, lease_score)


def write_progress(queue: str, task_id: str, owner: Owner, progress: bytes) -> Operation[bool]:
    """Store the progress of a running task, b"" for none; False if the task is not the owner's any more."""
    return _write("write_progress", queue, task_id, owner, progress)


def _write(script: str, queue: str, task_id: str, owner: Owner, *data: bytes | str) -> Operation[bool]:
    return scripted(
        script,
        (keys.task(queue, task_id), keys.lease(queue)),
        (task_id, str(owner), *data),
        lambda reply: reply == 1,
        idempotent=True,
    )


def _add(key: str, member: str, score: int) -> Operation[int]:
    return Operation("ZADD", (key,), (score, member), int, idempotent=True)


class Serving(NamedTuple):
    """A live server: its queues, whether it takes tasks from them, and its notice (None for Go servers)."""

    queues: frozenset[str]
    is_active: bool
    notice: ServerNotice | None


def live_servers(now_s: int) -> Flow[list[Serving]]:
    """Read the data of the servers whose entries are current."""
    live: list[bytes] = yield Operation("ZRANGEBYSCORE", (keys.all_servers(),), (now_s, "+inf"), idempotent=True)
    return (yield from read_servers([key.decode("utf-8", "surrogateescape") for key in live]))


def read_servers(info_keys: Sequence[str]) -> Flow[list[Serving]]:
    """Read the data of some servers; those that are gone or unreadable are left out."""
    names = [name for key in info_keys for name in (key, keys.server_notice(key))]
    found: list[bytes | None] = yield from together(*(Operation("GET", (name,), (), idempotent=True) for name in names))
    servers = []
    for data, notice in zip(found[::2], found[1::2], strict=True):
        if data is None:
            continue
        try:
            info = decode_server_info(data)
        except InvalidMessageError:
            continue
        servers.append(Serving(frozenset(info.queues), info.status == _ACTIVE, notice_of(notice)))
    return servers


def notice_of(data: bytes | None) -> ServerNotice | None:
    """Read a notice; None if there is none, or it is of a later format."""
    try:
        return None if data is None else ServerNotice.decode(data)
    except InvalidMessageError:
        return None
