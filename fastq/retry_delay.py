"""How long asynq waits before it tries a failed task again."""

import random
from typing import Protocol

__all__ = ["default_retry_delay"]


class _Random(Protocol):
    def random(self) -> float: ...


def default_retry_delay(retried: int, rng: _Random = random) -> int:
    """Return seconds to wait: n⁴ + 15, plus 0 to 29 times n + 1 by chance, where n is the retries before this failure.

    The chance keeps tasks that failed together from coming back together.
    """
    return retried**4 + 15 + int(rng.random() * 30) * (retried + 1)
