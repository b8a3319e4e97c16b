"""``AppDescription``: what a child tells its server of the app."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from fastq.mux import ServeMux, Terms
from fastq.pool.shared.runner import Sort

__all__ = ["AppDescription"]

MOST_NAMES: Final = 4


class AppDescription(NamedTuple):
    """The parts of an app that its server has to know.

    ``patterns`` tells of each how its handler runs. ``queues`` has some of the typed tasks that go to each
    queue by themselves, ``urls`` the Redis URLs that the app enqueues to, ``terms`` those of the patterns with any.
    """

    patterns: Mapping[str, int] = {}
    queues: Mapping[str, Sequence[str]] = {}
    urls: Sequence[str] = ()
    terms: Mapping[str, Terms] = {}

    @classmethod
    def of(cls, mux: ServeMux, *, threads: bool = False) -> "AppDescription":
        """Describe an app whose plain handlers run in threads, or do not."""
        alone = mux.alone() if threads else mux.patterns()
        sorts = {
            pattern: Sort.ASYNC if is_async else Sort.PLAIN if pattern in alone else Sort.THREADED
            for pattern, is_async in mux.patterns().items()
        }
        queues, urls = mux.destinations()
        return cls(sorts, {queue: names[:MOST_NAMES] for queue, names in queues.items()}, urls, mux._terms())

    def encode(self) -> str:
        """Return the description as JSON."""
        terms = {pattern: tuple(found) for pattern, found in self.terms.items()}
        return orjson.dumps((self.patterns, self.queues, self.urls, terms)).decode()

    @classmethod
    def decode(cls, text: str) -> "AppDescription":
        """Read what ``encode`` made."""
        patterns, queues, urls, terms = orjson.loads(text)
        return cls(patterns, queues, urls, {pattern: Terms._make(found) for pattern, found in terms.items()})
