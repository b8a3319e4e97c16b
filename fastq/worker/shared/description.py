"""``AppDescription``: what a child reports to its server about the app."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from fastq.mux import ServeMux, Terms
from fastq.pool.shared.runner import Sort

MOST_NAMES: Final = 4


class AppDescription(NamedTuple):
    """The parts of an app that its server has to know.

    ``patterns`` maps each pattern to how its handler runs (a ``Sort``), ``queues`` each queue to some of the typed
    tasks that go there by default. ``urls`` are the Redis URLs that the app enqueues to. ``terms`` has the terms of
    patterns that have any. ``batches`` has the limits of each batch handler: the most tasks of a call, the seconds that
    it waits for them, and the most bytes.
    """

    patterns: Mapping[str, int] = {}
    queues: Mapping[str, Sequence[str]] = {}
    urls: Sequence[str] = ()
    terms: Mapping[str, Terms] = {}
    batches: Mapping[str, tuple[int, float, int]] = {}

    @classmethod
    def of(cls, mux: ServeMux, *, threads: bool = False) -> "AppDescription":
        """Describe an app; with ``threads``, its plain handlers run in threads, except those that must run alone."""
        alone = mux.alone() if threads else mux.patterns()
        sorts = {
            pattern: Sort.ASYNC if is_async else Sort.PLAIN if pattern in alone else Sort.THREADED
            for pattern, is_async in mux.patterns().items()
        }
        queues, urls = mux.destinations()
        batches = {pattern: one.limits for pattern, one in mux._batchings().items()}
        few = {queue: names[:MOST_NAMES] for queue, names in queues.items()}
        return cls(sorts, few, urls, mux._terms(), batches)

    def encode(self) -> str:
        """Return the description as JSON."""
        terms = {pattern: tuple(found) for pattern, found in self.terms.items()}
        return orjson.dumps((self.patterns, self.queues, self.urls, terms, self.batches)).decode()

    @classmethod
    def decode(cls, text: str) -> "AppDescription":
        """Read what ``encode`` made."""
        patterns, queues, urls, terms, batches = orjson.loads(text)
        limits = {pattern: (size, wait_s, most) for pattern, (size, wait_s, most) in batches.items()}
        return cls(patterns, queues, urls, {pattern: Terms._make(found) for pattern, found in terms.items()}, limits)
