"""Run the fault bench: ``python -m tests.chaos [--seconds --tasks --servers --children --seed --long --json …]``.

Exit code 0 if every guarantee held, 1 if one was broken, 130 if it was interrupted.
"""

import json
import sys
from collections.abc import Callable

from fastq.terminal.interruption import Interrupted, Interruption
from tests.chaos.bench import run_chaos
from tests.chaos.endurance import run_long
from tests.chaos.options import ChaosOptions, parse_options
from tests.chaos.table import as_json, lines_of

EXIT_BROKEN = 1
EXIT_INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    """Run, print, and return the exit code."""
    options = parse_options(arguments)

    def say(line: str) -> None:
        stream = sys.stderr if options.as_json else sys.stdout
        stream.write(f"{line}\n")
        stream.flush()

    say(f"seed {options.seed}; this run again: {options.command()}")
    try:
        with Interruption() as interruption:
            return _run(options, interruption, say)
    except Interrupted as interrupted:
        say(f"interrupted by {interrupted}; everything that was started has been ended")
        return EXIT_INTERRUPTED


def _run(options: ChaosOptions, interruption: Interruption, say: Callable[[str], None]) -> int:
    if options.is_long:
        endurance = run_long(options, interruption, say)
        figures = endurance.figures()
        rows = [json.dumps(figures, indent=1)] if options.as_json else [f"{k:<24} {v}" for k, v in figures.items()]
        sys.stdout.write("".join(f"{row}\n" for row in rows))
        return 0 if endurance.is_good else EXIT_BROKEN
    report = run_chaos(options, interruption, say)
    if options.as_json:
        sys.stdout.write(json.dumps(as_json(report), indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines_of(report)))
    return 0 if report.is_good else EXIT_BROKEN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
