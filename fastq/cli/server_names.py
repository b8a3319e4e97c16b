"""How servers are named: by the beginning of their ids, or by host and process."""

from collections.abc import Sequence
from typing import Final

from fastq.errors import FastqError
from fastq.inspector import ServerInfo
from fastq.text.human import clean

SHORT: Final = 8


def short_ids(servers: Sequence[ServerInfo]) -> dict[str, str]:
    """Return the shortest unambiguous beginning of each server's id, at least eight characters."""
    length = SHORT
    while len({info.id[:length] for info in servers}) < len({info.id for info in servers}):
        length += 1
    return {info.id: info.id[:length] for info in servers}


def name_of(info: ServerInfo) -> str:
    """Name a server in a sentence."""
    return f"{clean(info.host)}:{info.pid} ({clean(info.id[:SHORT])})"


def the_server(name: str, servers: Sequence[ServerInfo]) -> ServerInfo:
    """Return the server with this name; if it is ambiguous, ``FastqError`` lists the candidates."""
    exact = [info for info in servers if name in (info.id, f"{info.host}:{info.pid}")]
    found = exact or [info for info in servers if name and info.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise FastqError(f"{name!r} may be any of {_listed(found)}; write more of its id")
    there = f"there are {_listed(servers)}" if servers else "there are no servers running"
    raise FastqError(f"no server {name!r}: {there}")


def _listed(servers: Sequence[ServerInfo]) -> str:
    return ", ".join(f"{clean(info.id)} ({clean(info.host)}:{info.pid})" for info in servers)
