"""What Redis, or a cluster of it, says of itself."""

from fastq.broker.operation import Operation

__all__ = ["cluster_info", "redis_info"]


def redis_info() -> Operation[dict[str, str]]:
    """Read the facts that INFO has, by name; of a cluster those of one node."""
    return Operation("INFO", (), (), _facts, idempotent=True)


def cluster_info() -> Operation[dict[str, str]]:
    """Read what a node knows of its cluster; a ``BrokerError`` where Redis is none."""
    return Operation("CLUSTER", (), ("INFO",), _facts, idempotent=True)


def _facts(reply: bytes) -> dict[str, str]:
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.partition(":")[::2] for line in lines if ":" in line and not line.startswith("#"))
