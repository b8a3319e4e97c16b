"""The harness' end of a contender's producer (``produce.py`` is the other one)."""

import json
import selectors
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from benchmarks.compare.contender import Command
from benchmarks.compare.surroundings import Surroundings


class TurnError(RuntimeError):
    """Raised when a contender's turn gave no figures; the text says why."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What the producer measured of one request; ``late_ns`` is how long after its time each paced call returned."""

    began_ns: int
    ended_ns: int
    cpu_ns: int
    late_ns: Sequence[int] = ()

    @property
    def seconds(self) -> float:
        """Return the time from the first call to the end of the last."""
        return (self.ended_ns - self.began_ns) / 1e9


class Producer:
    """A running producer process."""

    def __init__(self, command: Command, around: Surroundings, limit_s: float) -> None:
        self._limit_s = limit_s
        self._process = subprocess.Popen(
            [str(word) for word in command],
            env=dict(around.variables),
            cwd=around.directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=around.log,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def wait_until_ready(self) -> None:
        """Wait for the producer's first word."""
        self._answer()

    def each(self, kind: str, count: int) -> Sent:
        """Have so many tasks enqueued, one call each."""
        return self._ask("each", kind, count)

    def many(self, kind: str, count: int) -> Sent:
        """Have so many tasks enqueued in bulk."""
        return self._ask("many", kind, count)

    def paced(self, kind: str, count: int, rate: float) -> Sent:
        """Have so many tasks enqueued at random times, so many a second in the mean."""
        return self._ask("paced", kind, count, rate)

    def _ask(self, op: str, kind: str, count: int, rate: float = 0.0) -> Sent:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(
                json.dumps({"op": op, "kind": kind, "count": count, "rate": rate}).encode() + b"\n"
            )
            self._process.stdin.flush()
        except BrokenPipeError:
            raise TurnError("the producer ended") from None
        return Sent(**self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(self._limit_s):
                raise TurnError(f"the producer did not answer within {self._limit_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise TurnError("the producer ended")
        return json.loads(line)
