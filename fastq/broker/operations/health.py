"""The operations that check whether Redis answers, and its version."""

from fastq.broker.operation import Operation

__all__ = ["ping", "server_version"]


def ping() -> Operation[object]:
    """Send a PING."""
    return Operation("PING", (), (), idempotent=True)


def server_version() -> Operation[str]:
    """Read the version of the server, "" if it reports none; it needs the right to INFO."""
    return Operation("INFO", (), ("server",), _version, idempotent=True)


def _version(reply: bytes) -> str:
    facts = dict(line.partition(b":")[::2] for line in reply.splitlines())
    for name, product in ((b"valkey_version", "Valkey"), (b"redis_version", "Redis")):
        if name in facts:
            return f"{product} {facts[name].decode(errors='replace')}"
    return ""
