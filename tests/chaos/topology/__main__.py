"""Run the fault bench for topologies: ``python -m tests.chaos.topology --kind sentinel|cluster --seed N --minutes M``.

Exit code 0 if every guarantee held, 1 if one was broken, 130 if it was interrupted.
"""

import argparse
import json
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from fastq.terminal.interruption import Interrupted, Interruption
from tests.chaos.topology.bench import Bench, Options
from tests.chaos.topology.check import GUARANTEES, Verdict
from tests.chaos.topology.faults import scenarios_named

EXIT_BROKEN = 1
EXIT_INTERRUPTED = 130
SHOWN = 10


def main(arguments: list[str]) -> int:
    """Run what the command line asks for, print, and return the exit code."""
    options, json_file = _parse(arguments)

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    say(f"{options.kind}, seed {options.seed}, wait_replicas {options.wait_replicas}: {', '.join(options.faults)}")
    try:
        with Interruption() as interruption, ExitStack() as stack:
            verdict = Bench(options, interruption, say, stack).run()
    except Interrupted as interrupted:
        say(f"interrupted by {interrupted}; everything that was started has been ended")
        return EXIT_INTERRUPTED
    for line in _lines(verdict):
        say(line)
    if json_file is not None:
        json_file.write_text(json.dumps(_record(options, verdict), indent=1) + "\n")
    return EXIT_BROKEN if verdict.violations else 0


def _parse(arguments: list[str]) -> tuple[Options, Path | None]:
    parser = argparse.ArgumentParser("python -m tests.chaos.topology", description="Faults on Sentinel and Cluster.")
    parser.add_argument("--kind", choices=["sentinel", "cluster"], required=True, help="the site")
    parser.add_argument("--seed", type=int, help="repeats the order of faults and the tasks (drawn if not given)")
    parser.add_argument("--minutes", type=float, default=3.0, help="for how long faults begin (3)")
    parser.add_argument("--rounds", type=int, default=0, help="at most so many of each fault")
    parser.add_argument("--wait-replicas", type=int, default=0, help="what fastq's producers wait for (0)")
    parser.add_argument("--faults", default="", help="only these, comma-separated")
    parser.add_argument("--without-go", action="store_true", help="no Go asynq beside fastq")
    parser.add_argument("--keep", type=Path, help="a new directory for ledgers and logs")
    parser.add_argument("--json", type=Path, help="write the report here, too")
    given = parser.parse_args(arguments)
    try:
        faults = scenarios_named(given.faults, given.kind)
    except ValueError as error:
        parser.error(str(error))
    seed = secrets.randbelow(1 << 31) if given.seed is None else given.seed
    words = (given.kind, seed, given.minutes, faults, given.wait_replicas, given.rounds)
    return Options(*words, with_go=not given.without_go, keep=given.keep), given.json


def _record(options: Options, verdict: Verdict) -> dict[str, object]:
    violations = [violation._asdict() for violation in verdict.violations]
    told = {"figures": verdict.figures, "rows": verdict.rows, "lost": verdict.lost, "repeated": verdict.repeated}
    return {**asdict(options), "keep": None, **told, "violations": violations}


def _lines(verdict: Verdict) -> Iterator[str]:
    yield ""
    yield from (f"{name:<58} {number:>8}" for name, number in verdict.figures.items())
    yield ""
    if verdict.rows:
        yield _row(list(verdict.rows[0]))
        yield _row(["---"] * len(verdict.rows[0]))
        yield from (_row(list(row.values())) for row in verdict.rows)
        yield ""
    for key, text in GUARANTEES.items():
        broken = [violation.text for violation in verdict.violations if violation.guarantee == key]
        yield f"{text:<90} {f'BROKEN {len(broken)} x' if broken else 'held'}"
        yield from (f"  {line}" for line in broken[:SHOWN])


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
