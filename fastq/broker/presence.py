"""Presence: what a server publishes about itself, so that inspectors see it, and the results its tasks write."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastq import keys
from fastq.broker.lease import Owner
from fastq.broker.operation import Operation, Word
from fastq.broker.scripts import load_script

__all__ = ["ServerIdentity", "clear_server_state", "publish_server_state", "write_result"]


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Name a server as its keys do."""

    host: str
    pid: int
    server_id: str

    @property
    def info_key(self) -> str:
        """Name the string that holds its ServerInfo."""
        return keys.server_info(self.host, self.pid, self.server_id)

    @property
    def workers_key(self) -> str:
        """Name the hash of what it runs."""
        return keys.workers(self.host, self.pid, self.server_id)


def publish_server_state(
    server: ServerIdentity, info: bytes, workers: Mapping[str, bytes], now_s: int, ttl_s: int
) -> tuple[Operation[int], ...]:
    """Publish the encoded ServerInfo, and a WorkerInfo for each running task id, for ``ttl_s`` seconds."""
    words: list[Word] = [word for worker in workers.items() for word in worker]
    script = load_script("write_server_state")
    return (
        _add(keys.all_servers(), server.info_key, now_s + ttl_s),
        _add(keys.all_workers(), server.workers_key, now_s + ttl_s),
        Operation(
            "write_server_state",
            script,
            (server.info_key, server.workers_key),
            (ttl_s, info, *words),
            int,
            idempotent=True,
        ),
    )


def clear_server_state(server: ServerIdentity) -> tuple[Operation[int], ...]:
    """Take back all that was published."""
    return (
        Operation("ZREM", None, (keys.all_servers(),), (server.info_key,), int, idempotent=True),
        Operation("ZREM", None, (keys.all_workers(),), (server.workers_key,), int, idempotent=True),
        Operation("DEL", None, (server.info_key, server.workers_key), (), int, idempotent=True),
    )


def write_result(queue: str, task_id: str, owner: Owner, result: bytes) -> Operation[bool]:
    """Store the result of a task that is still running; False if it is not the owner's any more."""
    return Operation(
        "write_result",
        load_script("write_result"),
        (keys.task(queue, task_id), keys.lease(queue)),
        (task_id, str(owner), result),
        lambda reply: reply == 1,
        idempotent=True,
    )


def _add(key: str, member: str, score: int) -> Operation[int]:
    return Operation("ZADD", None, (key,), (score, member), int, idempotent=True)
