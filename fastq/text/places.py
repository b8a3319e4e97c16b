"""The places of servers as text for people: how many tasks of each kind run, and how many may run at once."""

from collections.abc import Iterable, Sequence
from typing import Final

from fastq.inspector import ServerInfo
from fastq.text.human import number
from fastq.wire.messages import Places

_PLURALS: Final = {"process": "processes", "thread": "threads", "coroutine": "coroutines"}


def places_of(servers: Iterable[ServerInfo]) -> list[Places]:
    """Add up the places of servers by kind. Go's servers publish only a number, so their kind is empty."""
    found: dict[str, Places] = {}
    for server in servers:
        for kind, busy, size in server.places or (("", len(server.active_workers), server.concurrency),):
            before = found.get(kind, Places(kind, 0, 0))
            found[kind] = Places(kind, before.busy + busy, before.size + size)
    return list(found.values())


def use_text(places: Sequence[Places]) -> str:
    """Return how many places of each kind are in use: ``5 of 16 threads, 2 of 400 coroutines``."""
    return ", ".join(f"{number(each.busy)} of {number(each.size)}{_named(each, places)}" for each in places)


def plural_of(places: Sequence[Places]) -> str:
    """Return how many places of each kind there are: ``16 threads, 400 coroutines``; a single kind is not named."""
    if len(places) == 1:
        return number(places[0].size)
    return ", ".join(f"{number(each.size)}{_named(each, places)}" for each in places)


def _named(each: Places, places: Sequence[Places]) -> str:
    name = _PLURALS.get(each.kind, each.kind)
    return f" {name or 'others'}" if name or len(places) > 1 else ""


def fullest(places: Iterable[Places]) -> float:
    """Return the largest share of a kind of places that is in use, from 0 to 1."""
    return max((min(1.0, each.busy / each.size) for each in places if each.size), default=0.0)
