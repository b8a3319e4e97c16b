"""Reads the notices of servers: what fastq's tell beyond asynq's ServerInfo."""

from collections.abc import Sequence

from fastq.broker.operation import Flow, Operation, together
from fastq.errors import InvalidMessageError
from fastq.wire import keys
from fastq.wire.notice import ServerNotice

__all__ = ["live_notices", "read_notices"]


def live_notices(now_s: int) -> Flow[dict[str, ServerNotice]]:
    """Read the notices of the servers that are not out of date, by their ``server_info`` keys."""
    live: list[bytes] = yield Operation("ZRANGEBYSCORE", None, (keys.all_servers(),), (now_s, "+inf"), idempotent=True)
    return (yield from read_notices([key.decode("utf-8", "surrogateescape") for key in live]))


def read_notices(info_keys: Sequence[str]) -> Flow[dict[str, ServerNotice]]:
    """Read the notices of some servers; those without one, Go's among them, are left out."""
    found = yield from together(
        *(Operation("GET", None, (keys.server_notice(key),), (), _notice, idempotent=True) for key in info_keys)
    )
    return {key: notice for key, notice in zip(info_keys, found, strict=True) if notice is not None}


def _notice(reply: bytes | None) -> ServerNotice | None:
    try:
        return None if reply is None else ServerNotice.decode(reply)
    except InvalidMessageError:
        return None  # of a later format: it tells us nothing
