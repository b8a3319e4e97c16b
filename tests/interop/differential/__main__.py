"""Run sequences for a seed and print what was reached: ``python -m tests.interop.differential --seed 7``."""

import argparse
import sys

from tests.interop.build import build_peer
from tests.interop.differential.campaign import campaign
from tests.interop.differential.table import table_of


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sequences", type=int, default=100)
    arguments = parser.parse_args()
    with campaign(arguments.seed, build_peer()) as run:
        try:
            for _ in range(arguments.sequences):
                run.run_sequence()
        finally:
            sys.stdout.write(table_of(run))


main()
