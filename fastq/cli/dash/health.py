"""The health of Redis as seen from requests: Redis answers, has not answered for some time, or refuses requests."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from fastq.errors import BrokerConnectionError, BrokerError, BrokerTimeoutError
from fastq.text.human import clean, span

LONG_S: Final = 2.0
"""The time that a request may take before it is reported."""


class Health:
    """The pending requests to Redis, each with its start, and the last failure."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._waiting: list[float] = []
        self._failed_since_s: float | None = None
        self._error: BrokerError | None = None

    @property
    def is_ill(self) -> bool:
        """Return whether the last request failed."""
        return self._error is not None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Time a request to Redis and record how it ends; suppress errors that Redis or the network caused."""
        began_s = self._clock_s()
        self._waiting.append(began_s)
        try:
            yield
        except BrokerError as error:
            self._error = error
            if self._failed_since_s is None:
                self._failed_since_s = began_s
        else:
            self._error = self._failed_since_s = None
        finally:
            self._waiting.remove(began_s)

    def __str__(self) -> str:
        if self._error is not None and self._failed_since_s is not None:
            silent = isinstance(self._error, BrokerConnectionError | BrokerTimeoutError)
            what = "does not answer" if silent else "refuses"
            return f"Redis {what} since {self._for(self._failed_since_s)}: {clean(' '.join(str(self._error).split()))}"
        if self._waiting and self._clock_s() - min(self._waiting) >= LONG_S:
            return f"Redis has not answered for {self._for(min(self._waiting))}"
        return ""

    def _for(self, since_s: float) -> str:
        return span(timedelta(seconds=max(1, round(self._clock_s() - since_s))))
