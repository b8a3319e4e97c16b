"""Redis URLs, for ends that read them from people: the default, the variable that gives one, and what one means."""

from fastq.broker.transport.connection import DEFAULT_URL, url_variable
from fastq.broker.transport.uri import ConnectionKind, ConnectionSpec, parse_redis_uri

__all__ = ["DEFAULT_URL", "ConnectionSpec", "is_cluster", "parse_redis_uri", "url_variable"]


def is_cluster(url: str) -> bool:
    """Return whether a URL is that of a cluster."""
    return parse_redis_uri(url).kind is ConnectionKind.CLUSTER
