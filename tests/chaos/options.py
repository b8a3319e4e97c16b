"""What a run of the bench is asked to do, and the times of servers that follow from the length of a lease."""

import argparse
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastq.server.base.timing import Timing

_STANDARD_LEASE_S: Final = 30
_STANDARD_LIMIT_S: Final = 120


@dataclass(frozen=True)
class ChaosOptions:
    """How much is done, for how long, and from which seed."""

    seed: int
    seconds: float = 120.0
    tasks: int = 200_000
    servers: int = 3
    children: int = 2
    lease_s: int = 4
    every_s: float = 0.8
    outage_s: float = 75.0
    redis_server: str | None = None
    keep: Path | None = None
    as_json: bool = False
    is_long: bool = False
    only: str = ""

    @property
    def limit_s(self) -> float:
        """Return by when after the last fault nothing may be stuck: 120 s for leases of 30 s, and no less than 10."""
        return max(10.0, _STANDARD_LIMIT_S * self.lease_s / _STANDARD_LEASE_S)

    def command(self) -> str:
        """Return the command that repeats this run."""
        words = [f"--seed {self.seed}", f"--seconds {self.seconds:g}", f"--tasks {self.tasks}"]
        words += [f"--servers {self.servers}", f"--children {self.children}", f"--lease {self.lease_s}"]
        words += [
            f"--every {self.every_s:g}",
            f"--outage {self.outage_s:g}",
            f"--only {self.only}" if self.only else "",
        ]
        return " ".join(["python -m tests.chaos", *filter(None, words), *(["--long"] if self.is_long else [])])


def timing_of(lease_s: int) -> Timing:
    """Return a server's fixed times as they are to one another when leases last 30 s, or shorter."""
    beat_s = lease_s / 6
    return Timing(
        lease_s=lease_s,
        recover_grace_s=max(1, lease_s // 2),
        recoverer_interval_s=lease_s / 4,
        heartbeat_interval_s=beat_s,
        stall_s=beat_s,
        settle_s=3 * beat_s,
    )


def parse_options(arguments: list[str]) -> ChaosOptions:
    """Read the command line."""
    parser = argparse.ArgumentParser("python -m tests.chaos", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, help="for how long faults strike (120; with --long 180)")
    parser.add_argument("--tasks", type=int, help="tasks in all (200000)", default=200_000)
    parser.add_argument("--servers", type=int, help="servers (3)", default=3)
    parser.add_argument("--children", type=int, help="children of each server (2; with --long 16)")
    parser.add_argument("--seed", type=int, help="repeats a plan of faults and its tasks (drawn if not given)")
    parser.add_argument("--lease", type=int, dest="lease_s", help="length of leases in seconds (4)", default=4)
    parser.add_argument("--every", type=float, dest="every_s", help="mean seconds between faults (0.8)", default=0.8)
    parser.add_argument(
        "--outage", type=float, dest="outage_s", help="seconds without Redis after all else (75)", default=75.0
    )
    parser.add_argument("--only", default="", help="only faults whose names have one of these words, comma-separated")
    parser.add_argument("--redis-server", help="the server program to use")
    parser.add_argument("--keep", type=Path, help="a new directory for ledger, logs and Redis' files")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print the report as JSON")
    parser.add_argument(
        "--long", action="store_true", dest="is_long", help="children in loops that hold the interpreter; no faults"
    )
    given: dict[str, Any] = vars(parser.parse_args(arguments))
    defaults = dict.fromkeys(given) | {"seconds": 120.0, "children": 2, "seed": secrets.randbelow(1 << 31)}
    if given["is_long"]:
        defaults |= {"seconds": 180.0, "children": 16}
    chosen: dict[str, Any] = {name: defaults[name] if value is None else value for name, value in given.items()}
    return ChaosOptions(**chosen)
