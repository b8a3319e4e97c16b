"""Compares where an app enqueues with where its server works: its Redis and its queues."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fastq.broker.transport.uri import DEFAULT_URL, Address, default_url, mask_password, parse_redis_uri, url_variable
from fastq.worker.shared.description import MOST_NAMES, AppDescription

_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_log = logging.getLogger("fastq")


def refusal_of(name: str, app: AppDescription, redis: str | None) -> str:
    """Return why a server that was given no URL cannot serve an app that names another Redis; "" if it can."""
    if redis is not None or os.environ.get(url_variable(os.environ)):
        return ""
    for url in _others(app, None):
        return (
            f"{name} enqueues into {mask_password(url)}, but this worker was given no Redis and would take tasks from "
            f"{DEFAULT_URL}; give it the same URL (--redis or $FASTQ_REDIS_URL)"
        )
    return ""


def log_unserved(name: str, app: AppDescription, redis: str | None, queues: Mapping[str, int]) -> None:
    """Log which tasks of an app do not come to its server: those for another Redis, or for queues it does not serve."""
    for url in _others(app, redis):
        _log.warning(
            "%s enqueues into %s, but this worker takes tasks from %s, so it does not run them; "
            "name one URL for both, or none in App(), which then uses that of its worker",
            *(name, mask_password(url), mask_password(redis or default_url())),
        )
    missing = {queue: names for queue, names in app.queues.items() if queue not in queues}
    if not missing:
        return
    listed = "; ".join(f"{queue} ({_listed(names)})" for queue, names in missing.items())
    if len(missing) == len(app.queues):
        _log.warning(
            "this worker serves %s, but all typed tasks of %s are enqueued into other queues: %s; start it with "
            "--queues %s",
            *(", ".join(queues), name, listed, ",".join(missing)),
        )
        return
    weights = ",".join(f"{queue}={weight}" for queue, weight in {**queues, **dict.fromkeys(missing, 1)}.items())
    _log.info(
        "%s also has tasks in queues that this worker does not serve: %s; another worker must, or this one with "
        "--queues %s",
        *(name, listed, weights),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) + (", …" if len(names) == MOST_NAMES else "")


class _Place(NamedTuple):
    """A Redis and its database, without the user and the password."""

    kind: str
    path: str
    db: int
    master: str
    addresses: frozenset[Address]

    @classmethod
    def of(cls, url: str) -> "_Place":
        spec = parse_redis_uri(url)
        addresses = (Address("localhost", each.port) if each.host in _LOCAL else each for each in spec.addresses)
        return cls(spec.kind, spec.path, max(0, spec.db), spec.master_name, frozenset(addresses))

    def is_like(self, other: "_Place") -> bool:
        """Return whether both are the same Redis, as far as their names show; one common node is enough."""
        is_met = self.addresses == other.addresses or bool(self.addresses & other.addresses)
        return self[:-1] == other[:-1] and is_met


def _others(app: AppDescription, redis: str | None) -> list[str]:
    """Return the URLs of an app that name another Redis than the server's."""
    here = _Place.of(redis or default_url())
    return [url for url in app.urls if not _Place.of(url).is_like(here)]
