"""What a command that acts on what is named says of it: a line for each, or as JSON how many were done, what failed."""

from collections.abc import Callable, Sequence
from typing import Self

from fastq.cli.session import Session, each, emit
from fastq.inspector.json_records import acted_record

__all__ = ["Acting"]


class Acting:
    """An action on each named thing, whatever happens to the others; ``end`` prints the results as JSON."""

    def __init__(self, session: Session, *, as_json: bool) -> None:
        self._session = session
        self._as_json = as_json
        self._done = 0
        self._failed: dict[str, str] = {}

    def look(self, names: Sequence[str], act: Callable[[str], None]) -> Self:
        """Do to each what is done before; one that fails is not acted on, and counts as failed."""
        each(self._session, names, act, self._failed)
        return self

    def each(self, names: Sequence[str], act: Callable[[str], str]) -> Self:
        """Act on each, and say the line that this returns."""

        def act_and_say(name: str) -> None:
            line = act(name)
            self._done += 1
            if not self._as_json:
                self._session.screen.say(line)

        return self.look(names, act_and_say)

    def end(self) -> int:
        """Write the JSON, if it is wanted; returns the exit code."""
        if self._as_json:
            emit(acted_record(self._done, self._failed))
        return 1 if self._failed else 0
