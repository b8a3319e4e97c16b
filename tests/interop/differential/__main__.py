"""Run sequences for a seed and print what was reached: ``python -m tests.interop.differential --seed 7``."""

import argparse
import sys

from tests.interop.build import build_peer
from tests.interop.differential.lanes import run_all
from tests.interop.differential.table import table_of


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sequences", type=int, default=2000, help="at most; they end when all is reached")
    arguments = parser.parse_args()
    sys.stdout.write(table_of(run_all(arguments.seed, build_peer(), arguments.sequences)))


main()
