"""Redis URLs given by users: the default, the environment variable, and their interpretation."""

from fastq.broker.transport.uri import DEFAULT_URL, ConnectionKind, ConnectionSpec, parse_redis_uri, url_variable

__all__ = ["DEFAULT_URL", "ConnectionSpec", "is_cluster", "parse_redis_uri", "url_variable"]


def is_cluster(url: str) -> bool:
    """Return whether a URL leads to a cluster."""
    return parse_redis_uri(url).kind is ConnectionKind.CLUSTER
