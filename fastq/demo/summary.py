"""The summary: the outcome of the tasks, the speed, the discrepancies, and pointers for further reading."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fastq.demo.audit import Audit
from fastq.demo.books import Books
from fastq.demo.fates import Fate
from fastq.demo.figures import Figures, quantile
from fastq.terminal.screen import Screen, grouped

_MOST_FAULTS: Final = 20


def print_summary(screen: Screen, books: Books, audit: Audit, figures: Figures, weights: Mapping[str, int]) -> None:
    """Print the summary of a run."""
    _print_fates(screen, books, audit)
    _print_figures(screen, figures, weights)
    if audit.faults:
        _print_faults(screen, audit)
        return
    tick = "✓ " if screen.can_draw else ""
    tasks, runs = grouped(len(books.by_id)), grouped(figures.runs)
    screen.say(f"{tick}Every one of {tasks} tasks is accounted for: Redis' counters and states,", fg="green", bold=True)
    screen.say(f"  and the handlers' own ledger of {runs} runs, agree.", fg="green", bold=True)
    screen.say()
    _print_next(screen)


def _print_fates(screen: Screen, books: Books, audit: Audit) -> None:
    expected = books.expected()
    screen.say(f"{'Outcome of the tasks':<40}{'expected':>10}{'found':>10}", bold=True)
    for fate in Fate:
        right, found = expected[fate], audit.found.get(fate, 0)
        if right or found:
            line = f"  {fate.value:<38}{grouped(right):>10}{grouped(found):>10}"
            screen.say(line, **({} if right == found else {"fg": "red"}))
    screen.say()


def _print_figures(screen: Screen, figures: Figures, weights: Mapping[str, int]) -> None:
    screen.say("The run", bold=True)
    screen.say(f"  {grouped(figures.runs)} runs in {figures.seconds:.1f} s")
    screen.say(f"  while all queues were full: {grouped(figures.busy_rate)} runs/s over {figures.busy_seconds:.1f} s")
    total = sum(weights.values())
    for queue, weight in weights.items():
        share = figures.shares.get(queue, 0.0)
        screen.say(f"    {queue:<16} weight {weight}   {share:6.2%} of the runs ({weight / total:.0%} by weight)")
    screen.say("  delayed tasks began this long after their due time")
    _print_lateness(screen, "with a backlog", figures.late_busy)
    _print_lateness(screen, "without a backlog", figures.late_idle)
    screen.say()


def _print_lateness(screen: Screen, when: str, late: Sequence[float]) -> None:
    times = f"p50 {_time(quantile(late, 0.5))}, p99 {_time(quantile(late, 0.99))}"
    screen.say(f"    {when:<28} {times}   ({len(late)} tasks)")


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _print_faults(screen: Screen, audit: Audit) -> None:
    screen.say(f"{len(audit.faults)} discrepancies:", fg="red", bold=True)
    for fault in audit.faults[:_MOST_FAULTS]:
        screen.say(f"  {fault}")
    if len(audit.faults) > _MOST_FAULTS:
        screen.say(f"  and {len(audit.faults) - _MOST_FAULTS} more")


def _print_next(screen: Screen) -> None:
    screen.say("Where to go next", bold=True)
    for what, where in (
        ("the handlers of this demo", "fastq/demo/app.py"),
        ("your own worker and producer", "README.md"),
        ("every setting of the worker", f"{_program('fastq-worker')} --help"),
        ("the same on your Redis", f"{_program('fastq')} demo --redis redis://127.0.0.1:6379/0"),
        ("how it is built", "ARCHITECTURE.md"),
    ):
        screen.say(f"  {what:<38}{screen.paint(where, bold=True)}")


def _program(name: str) -> str:
    """Return the command line for one of our programs."""
    if shutil.which(name):
        return name
    beside = Path(sys.executable).with_name(name)
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)
