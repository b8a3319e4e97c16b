"""``AppDescription``: what a child tells its server of the app."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from fastq.mux import ServeMux

__all__ = ["AppDescription"]

MOST_NAMES: Final = 4


class AppDescription(NamedTuple):
    """The parts of an app that its server has to know.

    ``patterns`` tells of each whether its handler is async. ``queues`` has some of the typed tasks that go to each
    queue by themselves, ``urls`` the Redis URLs that the app enqueues to.
    """

    patterns: Mapping[str, bool] = {}
    queues: Mapping[str, Sequence[str]] = {}
    urls: Sequence[str] = ()

    @classmethod
    def of(cls, mux: ServeMux) -> "AppDescription":
        """Describe an app."""
        queues, urls = mux.destinations()
        return cls(mux.patterns(), {queue: names[:MOST_NAMES] for queue, names in queues.items()}, urls)

    def encode(self) -> str:
        """Return the description as JSON."""
        return orjson.dumps(tuple(self)).decode()

    @classmethod
    def decode(cls, text: str) -> "AppDescription":
        """Read what ``encode`` made."""
        return cls._make(orjson.loads(text))
