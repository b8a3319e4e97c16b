"""``python -m benchmarks.compare``: take the rounds, then write the table, the JSON and the plot."""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from benchmarks.compare.conditions import CONDITIONS
from benchmarks.compare.contender import Contender
from benchmarks.compare.contenders import CONTENDERS
from benchmarks.compare.environment import BUILD, UnavailableError, ensure, programs_of, version
from benchmarks.compare.record import Entry, Record, machine
from benchmarks.compare.rounds import Rounds, say
from benchmarks.compare.sizes import QUICK, THOROUGH, fixed, plan
from benchmarks.compare.table import markdown
from benchmarks.compare.turn import Figures, Plan
from tests.redis_servers import server_program

ROUNDS = 9
MINUTES = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    options = _parse(arguments)
    record = Record.load(options.render) if options.render else _take(options)
    text = markdown(record)
    print(text)
    if options.json:
        record.save(options.json)
    if options.table:
        options.table.write_text(text)
    if options.plot:
        _plot(record, options.plot)
    return 0 if any(entry.rounds for entry in record.entries) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.compare", description="Compare fastq with other task queues.")
    parser.add_argument("--rounds", type=int, help=f"turns of each (default: {ROUNDS} if they fit in; 1 with --quick)")
    limit = f"begin no round that would end later (default: {MINUTES:.0f}; none with --rounds)"
    parser.add_argument("--minutes", type=float, help=limit)
    parser.add_argument("--tasks", default="auto", help="no-op tasks a turn; auto: about two seconds' worth for each")
    parser.add_argument("--only", help=f"names with commas between them, of {', '.join(c.name for c in CONTENDERS)}")
    parser.add_argument(
        "--condition", choices=CONDITIONS, default="plain", help="where Redis is, and what it does (default: plain)"
    )
    parser.add_argument("--quick", action="store_true", help="one short round without warm-up, to see that it works")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--table", type=Path, help="write the table here, as Markdown")
    parser.add_argument("--plot", type=Path, help="draw the plot here, a PNG")
    parser.add_argument(
        "--render", type=Path, metavar="JSON", help="measure nothing, use the figures of an earlier run"
    )
    options = parser.parse_args(arguments)
    if options.minutes is None:
        options.minutes = float("inf") if options.rounds else MINUTES
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    unknown = set((options.only or "").split(",")) - {"", *(contender.name for contender in CONTENDERS)}
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    return options


def _take(options: argparse.Namespace) -> Record:
    """Measure."""
    wanted = [c for c in CONTENDERS if not options.only or c.name in options.only.split(",")]
    programs = programs_of(wanted)
    where = machine(server_program())
    directory = BUILD / "logs"
    directory.mkdir(parents=True, exist_ok=True)
    condition = CONDITIONS[options.condition]
    rounds = Rounds(programs, directory, condition)
    began_s = time.monotonic()
    if programs:
        _run(rounds, options)
    entries = [
        Entry.of(c, version(c), rounds.figures[c.name], rounds.failures[c.name]) for c in wanted if c in programs
    ]
    return Record(
        datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic() - began_s, condition.title, where, entries
    )


def _run(rounds: Rounds, options: argparse.Namespace) -> None:
    """Take the rounds, after one that warms up where figures are to be had."""
    began_s, seconds = time.monotonic(), QUICK if options.quick else THOROUGH

    def size(contender: Contender, earlier: list[Figures]) -> Plan:
        if options.tasks != "auto":
            return fixed(contender, int(options.tasks))
        return plan(contender, earlier, seconds)

    if not options.quick:
        rounds.run(0, options.rounds, lambda contender, _: plan(contender, [], QUICK))
        rounds.forget()
    end_s, longest_s = began_s + 60 * options.minutes, 0.0
    for number in range(1, options.rounds + 1):
        now_s = time.monotonic()
        if now_s + longest_s > end_s:
            break
        rounds.run(number, options.rounds, size)
        longest_s = max(longest_s, time.monotonic() - now_s)
    say("")


def _plot(record: Record, target: Path) -> None:
    """Draw with an interpreter that has matplotlib, which fastq itself does not need."""
    figures = BUILD / "plot.json"
    record.save(figures)
    try:
        command: list[str | Path] = [ensure("plot"), Path(__file__).with_name("plot.py"), figures, target]
    except UnavailableError as error:
        print(f"no plot: {error}", file=sys.stderr)
        return
    subprocess.run(command, check=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End as on Ctrl-C, so that everything is cleaned up."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
