"""The operations that check whether Redis answers, its version, and whether it evicts keys."""

from fastq.broker.operation import Operation

__all__ = ["eviction_policy", "ping", "server_version"]


def ping() -> Operation[object]:
    """Send a PING."""
    return Operation("PING", (), (), idempotent=True)


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
