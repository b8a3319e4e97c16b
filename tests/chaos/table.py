"""The table: what struck, what ran, which guarantees held."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.chaos.checker import GUARANTEES, Verdict
from tests.chaos.journal import Journal
from tests.chaos.options import ChaosOptions

_SHOWN: Final = 10
_WIDE: Final = 66


@dataclass(frozen=True)
class Report:
    """The facts to show.

    ``settled_s`` is how long after the last fault all was worked off, ``stuck_s`` until when something was without a
    living lease.
    """

    options: ChaosOptions
    journal: Journal
    verdict: Verdict
    took_s: float
    settled_s: float
    stuck_s: float
    lives: int

    @property
    def is_good(self) -> bool:
        return not self.verdict.violations


def as_json(report: Report) -> dict[str, Any]:
    """Return the report for ``--json``."""
    verdict = report.verdict
    return {
        "command": report.options.command(),
        "seed": report.options.seed,
        "ok": report.is_good,
        "took_s": round(report.took_s, 1),
        "settled_s": round(report.settled_s, 1),
        "stuck_s": round(report.stuck_s, 1),
        "limit_s": report.options.limit_s,
        "server_lives": report.lives,
        "faults": _faults(report.journal),
        "missed": len(report.journal.missed),
        "figures": dict(verdict.figures),
        "explained": dict(verdict.explained),
        "violations": [violation._asdict() for violation in verdict.violations],
    }


def _faults(journal: Journal) -> Mapping[str, int]:
    return dict(Counter(strike.kind.value for strike in journal.strikes).most_common())


def lines_of(report: Report) -> Iterator[str]:
    """Yield the lines of the table."""
    verdict, options = report.verdict, report.options
    yield f"seed {options.seed}: {options.servers} servers x {options.children} children, leases of {options.lease_s} s"
    yield ""
    faults = _faults(report.journal)
    yield from _rows(f"{sum(faults.values())} faults ({len(report.journal.missed)} found no target)", faults)
    yield from _rows("what ran", {**verdict.figures, "lives of servers": report.lives})
    yield from _rows("runs that a fault explains", verdict.explained)
    yield "guarantees"
    broken = Counter(violation.guarantee for violation in verdict.violations)
    for key, text in GUARANTEES.items():
        yield f"  {text:<{_WIDE + 8}} {f'BROKEN {broken[key]} x' if broken[key] else 'held'}"
    yield f"  all worked off {report.settled_s:.1f} s after the last fault; nothing stuck after {report.stuck_s:.1f} s"
    yield f"  (limit {options.limit_s:g} s); the run took {report.took_s:.0f} s"
    shown: Counter[str] = Counter()
    for violation in verdict.violations:
        shown[violation.guarantee] += 1
        if shown[violation.guarantee] <= _SHOWN:
            yield f"BROKEN {violation.guarantee}: {violation.text}"
    yield ""
    yield f"{'OK' if report.is_good else 'FAILED'}; again: {options.command()}"


def _rows(title: str, rows: Mapping[str, int]) -> Iterator[str]:
    yield title
    for name, number in rows.items():
        yield f"  {name:<{_WIDE}} {f'{number:,}'.replace(',', ' '):>12}"
    yield ""
