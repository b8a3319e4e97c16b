"""The operations that ask whether Redis is there, and which it is."""

from fastq.broker.operation import Operation

__all__ = ["ping", "server_version"]


def ping() -> Operation[object]:
    """Ask for a sign of life."""
    return Operation("PING", (), (), idempotent=True)


def server_version() -> Operation[str]:
    """Ask for the version of the server, "" if it does not say; it needs the right to INFO."""
    return Operation("INFO", (), ("server",), _version, idempotent=True)


def _version(reply: bytes) -> str:
    facts = dict(line.partition(b":")[::2] for line in reply.splitlines())
    for name, product in ((b"valkey_version", "Valkey"), (b"redis_version", "Redis")):
        if name in facts:
            return f"{product} {facts[name].decode(errors='replace')}"
    return ""
