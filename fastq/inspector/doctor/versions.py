"""The check of the data formats that servers write."""

from collections.abc import Sequence
from typing import Final

from fastq.broker.inspect.registry import RegistryEntry
from fastq.broker.operation import Flow
from fastq.broker.operations.presence import read_servers
from fastq.inspector.doctor.finding import Finding, Level, Refused, attempt, unseen
from fastq.wire.notice import DATA_FORMAT

NAME: Final = "data formats"


def check_formats(registry: Sequence[RegistryEntry]) -> Flow[Finding]:
    """Compare the data formats of the servers with one another and with this version's."""
    servers = yield from attempt(read_servers([one.key for one in registry if one.listed_in == "servers"]))
    if isinstance(servers, Refused):
        return unseen(NAME, servers.why)
    known = sorted({(server.notice.data_format, server.notice.version) for server in servers if server.notice})
    if not known:
        return Finding(NAME, Level.OK, "no server tells one")
    seen = ", ".join(f"{data_format} (fastq {version})" for data_format, version in known)
    formats = [DATA_FORMAT, *(data_format for data_format, _ in known)]
    if max(formats) - min(formats) <= 1:
        return Finding(NAME, Level.OK, seen)
    return Finding(
        NAME,
        Level.PROBLEM,
        f"{seen}; {DATA_FORMAT} here",
        why="versions that are more than one format apart may misread each other's tasks",
        advice="bring all servers and clients to a version between them first; see docs/upgrading.md",
    )
