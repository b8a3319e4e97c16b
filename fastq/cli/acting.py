"""The output of commands that act on named items: a line for each item, or JSON with the count and the failures."""

from collections.abc import Callable, Sequence
from typing import Self

from fastq.cli.session import Session, each, emit
from fastq.inspector.json_records import acted_record
from fastq.text.human import clean


class Acting:
    """An action on named items, one by one. If it fails for one item, it goes on with the next."""

    def __init__(self, session: Session, *, as_json: bool) -> None:
        self._session = session
        self._as_json = as_json
        self._done = 0
        self._failed: dict[str, str] = {}

    def look(self, names: Sequence[str], act: Callable[[str], None]) -> Self:
        """Call ``act`` for each item; items for which it raises count as failed."""
        each(self._session, names, act, self._failed)
        return self

    def each(self, names: Sequence[str], act: Callable[[str], object], done: str = "") -> Self:
        """Act on each item, and print a line: ``done`` with its name, or what the action returns."""

        def act_and_say(name: str) -> None:
            line = act(name)
            self._done += 1
            if not self._as_json:
                self._session.screen.say(done.format(clean(name)) if done else str(line))

        return self.look(names, act_and_say)

    def end(self) -> int:
        """Write the JSON, if requested; returns the exit code."""
        if self._as_json:
            emit(acted_record(self._done, self._failed))
        return 1 if self._failed else 0
