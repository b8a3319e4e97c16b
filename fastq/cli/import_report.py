"""What became of the lines of an import: counted, the first of those that were left out named, as text and as JSON."""

from dataclasses import dataclass, field
from typing import Any, Final

from fastq.broker.inspect.put import Put
from fastq.cli.human import number
from fastq.cli.import_lines import Numbered
from fastq.cli.session import say_failure
from fastq.errors import TaskIDConflictError

__all__ = ["Report"]

TOLD: Final = 20
"""Of how many lines that were left out is told which they are."""


@dataclass(slots=True)
class Report:
    """Count what became of lines; ``lines`` are those that are done."""

    lines: int = 0
    count: int = 0
    exists: int = 0
    active: int = 0
    expired: int = 0
    archive_full: int = 0
    bad: int = 0
    locks_held: int = 0
    locks_expired: int = 0
    error: str | None = None
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    bad_lines: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        more = [
            (self.exists, "left out, since their ids are there"),
            (self.active, "left out, since they were active"),
            (self.expired, "left out, since their retention is over"),
            (self.archive_full, "left out, since the archive is full"),
            (0 if self.error else self.bad, "left out, since they are bad"),
            (self.locks_held, "without their unique locks, which others have"),
            (self.locks_expired, "without their unique locks, which have expired"),
        ]
        said = "".join(f"; {number(count)} {text}" for count, text in more if count)
        return f"{number(self.count)} of {number(self.lines)} tasks{said}"

    def note(self, each: Numbered, outcome: Put) -> None:
        """Count what became of a task that was put."""
        self.count += outcome in (Put.DONE, Put.WITHOUT_LOCK)
        self.locks_held += outcome is Put.WITHOUT_LOCK
        self.archive_full += outcome is Put.ARCHIVE_FULL
        if outcome is Put.ID_CONFLICT:
            self.exists += 1
            if len(self.conflicts) < TOLD:
                self.conflicts.append({"line": each.number, "queue": each.line.queue, "id": each.line.id})
                say_failure(f"line {each.number} left out: {TaskIDConflictError(each.line.queue, each.line.id)}")

    def note_bad(self, line: int, error: ValueError, *, is_left_out: bool) -> None:
        """Count a line that cannot be read."""
        self.bad += 1
        if len(self.bad_lines) < TOLD:
            self.bad_lines.append({"line": line, "error": str(error)})
            if is_left_out:
                say_failure(f"line {line} left out: {error}")

    def record(self, *, dry_run: bool) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "lines": self.lines,
            "count": self.count,
            "skipped": {
                "exists": self.exists,
                "active": self.active,
                "expired": self.expired,
                "archive_full": self.archive_full,
                "bad": self.bad,
            },
            "without_lock": {"held": self.locks_held, "expired": self.locks_expired},
            "conflicts": self.conflicts,
            "bad_lines": self.bad_lines,
            "error": self.error,
            "dry_run": dry_run,
        }
