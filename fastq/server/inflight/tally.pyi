from typing import Final, final

from fastq.pool.main.protocol import EventKind

ATTEMPT_BOUNDS: Final[tuple[float, ...]]
CALL_BOUNDS: Final[tuple[float, ...]]
OUTCOME_NAMES: Final[tuple[str, ...]]

@final
class Histogram:
    sum: float
    def __init__(self, bounds: tuple[float, ...]) -> None: ...
    def observe(self, value: float) -> None: ...
    @property
    def bounds(self) -> tuple[float, ...]: ...
    @property
    def counts(self) -> tuple[int, ...]: ...

@final
class Tally:
    queue: str
    type: str
    run_s: Histogram
    wait_s: Histogram
    attempts: Histogram
    call_tasks: Histogram | None
    call_wait_s: Histogram | None
    lost: int
    def __init__(self, queue: str, type: str) -> None: ...
    def take(self) -> list[int] | None: ...
    def give_back(self, counts: list[int]) -> None: ...
    @property
    def outcomes(self) -> dict[str, int]: ...
    @property
    def failures(self) -> dict[EventKind, int]: ...
