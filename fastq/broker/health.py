"""The operation that asks whether Redis is there."""

from fastq.broker.operation import Operation

__all__ = ["ping"]


def ping() -> Operation[object]:
    """Ask for a sign of life."""
    return Operation("PING", None, (), (), idempotent=True)
