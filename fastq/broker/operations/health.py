"""The operations that check whether Redis answers, its version, what its user may do, and whether it evicts keys."""

from collections.abc import Sequence

from fastq.broker.operation import Operation, scripted
from fastq.wire import keys


def ping() -> Operation[object]:
    """Send a PING."""
    return Operation("PING", (), (), idempotent=True)


def missing_rights(queue: str, commands: Sequence[str]) -> Operation[list[str]]:
    """Return which of some commands the Redis user may not run on a queue's keys; none where Redis cannot tell."""
    return scripted(
        "missing_rights",
        (keys.pending(queue),),
        commands,
        lambda reply: [command.decode() for command in reply],
        idempotent=True,
    )


def server_version() -> Operation[str]:
    """Read the version of the server, "" if it reports none; it needs the right to INFO."""
    return Operation("INFO", (), ("server",), _version, idempotent=True)


def eviction_policy() -> Operation[str]:
    """Read the maxmemory-policy of the server, "" if it reports none; it needs the right to INFO."""
    return Operation("INFO", (), ("memory",), _policy, idempotent=True)


def _facts(reply: bytes) -> dict[bytes, bytes]:
    return dict(line.partition(b":")[::2] for line in reply.splitlines())


def _policy(reply: bytes) -> str:
    return _facts(reply).get(b"maxmemory_policy", b"").decode(errors="replace")


def _version(reply: bytes) -> str:
    facts = _facts(reply)
    for name, product in ((b"valkey_version", "Valkey"), (b"redis_version", "Redis")):
        if name in facts:
            return f"{product} {facts[name].decode(errors='replace')}"
    return ""
