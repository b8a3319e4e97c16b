"""Reads the published data of live servers: whether they take tasks, their queues, and the notices of fastq's."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from fastq.broker.inspect.registry import read_infos
from fastq.broker.operation import Flow, Operation, together
from fastq.errors import InvalidMessageError
from fastq.wire import keys
from fastq.wire.codec import decode_server_info
from fastq.wire.notice import ServerNotice

__all__ = ["Serving", "live_servers", "read_servers"]

_ACTIVE: Final = "active"
"""asynq's word for a server that takes tasks; a quiet one is "stopped"."""


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
    infos = yield from read_infos(info_keys)
    found = yield from together(
        *(Operation("GET", (keys.server_notice(key),), (), _notice, idempotent=True) for key in info_keys)
    )
    notices = dict(zip(info_keys, found, strict=True))
    servers = []
    for data in infos:
        try:
            info = decode_server_info(data)
        except InvalidMessageError:
            continue
        notice = notices.get(keys.server_info(info.host, info.pid, info.server_id))
        servers.append(Serving(frozenset(info.queues), info.status == _ACTIVE, notice))
    return servers


def _notice(reply: bytes | None) -> ServerNotice | None:
    try:
        return None if reply is None else ServerNotice.decode(reply)
    except InvalidMessageError:
        return None  # of a later format, which we cannot read
