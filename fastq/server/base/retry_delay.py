"""The delay before a failed task is retried, as in asynq."""

import random
from typing import Protocol


class _Random(Protocol):
    def random(self) -> float: ...


def default_retry_delay(retried: int, rng: _Random = random) -> int:
    """Return the delay in seconds: n⁴ + 15 + (random 0 to 29) · (n + 1), where n is the retries before this failure.

    The random part keeps tasks that failed together from coming back together.
    """
    return retried**4 + 15 + int(rng.random() * 30) * (retried + 1)
