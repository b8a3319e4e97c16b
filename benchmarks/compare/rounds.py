"""Rounds: every contender once in each, the order turned by one from round to round."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.compare.conditions import Condition
from benchmarks.compare.contender import Contender
from benchmarks.compare.producer import TurnError
from benchmarks.compare.turn import Figures, Plan, Turn, take_turn

FAILURES_ALLOWED = 2
TAIL_LINES = 5


class Rounds:
    """Take turns, keep the figures of each, and why a turn failed; who fails too often is left out of later rounds."""

    def __init__(self, programs: Mapping[Contender, Path], directory: Path, condition: Condition) -> None:
        self._condition = condition
        self._programs = dict(programs)
        self._directory = directory
        self.figures: dict[str, list[Figures]] = {contender.name: [] for contender in programs}
        self.failures: dict[str, list[str]] = {contender.name: [] for contender in programs}

    def run(self, number: int, of: int, size: Callable[[Contender, list[Figures]], Plan]) -> None:
        """Take a turn with each, beginning with another one each round."""
        contenders = list(self._programs)
        first = number % len(contenders)
        for contender in [*contenders[first:], *contenders[:first]]:
            if len(self.failures[contender.name]) >= FAILURES_ALLOWED:
                continue
            say(f"round {number} of {of}  {contender.title}")
            self._turn(contender, size(contender, self.figures[contender.name]))

    def forget(self) -> None:
        """Drop the figures so far, as those of a round that only warms up."""
        for found in self.figures.values():
            found.clear()

    def _turn(self, contender: Contender, plan: Plan) -> None:
        turn = Turn(contender, self._programs[contender], plan, self._directory, self._condition)
        try:
            self.figures[contender.name].append(take_turn(turn))
        except (TurnError, OSError, AssertionError) as error:
            self.failures[contender.name].append(str(error))
            log = self._directory / f"{contender.name}.log"
            tail = log.read_text(errors="replace").splitlines()[-TAIL_LINES:] if log.exists() else []
            print("\n".join([f"\n{contender.title}: {error}", *tail]), file=sys.stderr)


def say(line: str) -> None:
    """Show where we are, in place on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)
