"""``python -m tests.simulation.child``: run seeds, tell the story of one, or shrink one that breaks a promise."""

import argparse
import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.simulation import core
from tests.simulation.child.build import install
from tests.simulation.planted import read_mistakes

PLANTED = read_mistakes(Path(__file__).with_name("planted.toml"))
LIMIT_S = 30
"""Of CPU time for one seed, and a tenth of the real time."""


def run_seed(seed: int, without: frozenset[int] = frozenset(), told: Path | None = None) -> dict[str, Any]:
    """Run a seed in a fork, which leaves its threads where they are in the end."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.setpgid(0, 0)  # a child's code may kill its group
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        signal.alarm(10 * LIMIT_S)
        from tests.simulation.child.scenario import Scenario

        scenario = Scenario(seed, without)
        report = scenario.run()
        if told:
            told.write_text("\n".join([*scenario.story, *report["broken"]]) + "\n", "utf-8")
        os.write(writing, json.dumps(report).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        return {"broken": [f"the run ended with status {status}"], "points": 0, "deeds": []}
    found: dict[str, Any] = json.loads(data)
    return found


def shrink(seed: int) -> tuple[frozenset[int], dict[str, Any]]:
    """Take away deeds for as long as a promise stays broken; return those taken away, and what is left."""
    report = run_seed(seed)
    gone: frozenset[int] = frozenset()
    for number in reversed(range(len(report["deeds"]))):
        if (fewer := run_seed(seed, gone | {number}))["broken"]:
            gone, report = gone | {number}, fewer
    return gone, report


def find(name: str, seeds: range) -> bool:
    """Tell how many seeds it took to find a mistake; in a fork, which imports it."""
    child = os.fork()
    if not child:
        install(PLANTED[name])
        core.stay()
        import tests.simulation.child.scenario  # noqa: F401 - once for all seeds

        for tried, seed in enumerate(seeds, 1):
            if broken := run_seed(seed)["broken"]:
                print(f"{name}: seed {seed}, {tried} seeds: {broken[0][:120]}", flush=True)  # noqa: T201
                os._exit(0)
        print(f"{name}: NOT FOUND in {len(seeds)} seeds", flush=True)  # noqa: T201
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def run_seeds(args: argparse.Namespace) -> int:
    """Run one seed after the other, and tell which break a promise."""
    import tests.simulation.child.scenario  # noqa: F401 - once for all seeds

    began_s, points, broken = time.monotonic(), 0, 0
    for seed in range(args.seed, args.seed + args.count):
        report = run_seed(seed, told=args.story)
        points += report["points"]
        if args.json:
            print(json.dumps({"seed": seed, **report}), flush=True)  # noqa: T201
        if report["broken"]:
            broken += 1
            print(f"seed {seed} breaks:", *report["broken"], sep="\n  ", flush=True)  # noqa: T201
            if args.shrink:
                gone, report = shrink(seed)
                print("needs:", *report["deeds"], *report["broken"], sep="\n  ", flush=True)  # noqa: T201
                if args.story:
                    run_seed(seed, gone, args.story)
    print(f"{args.count} seeds, {broken} broken; {points} points in {time.monotonic() - began_s:.0f} s")  # noqa: T201
    return 1 if broken else 0


def main() -> int:
    gc.disable()  # a fifth of what the imports take; a seed runs without it, too
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.child", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--story", type=Path, help="write what happens in a seed to this file")
    parser.add_argument("--shrink", action="store_true", help="tell which deeds a broken promise needs")
    parser.add_argument(
        "--plant", default=[], metavar="NAME", nargs="+", choices=[*PLANTED, "all"], help="see how soon it is found"
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each seed")
    args = parser.parse_args()
    if not args.plant:
        install()
        core.stay()
        return run_seeds(args)
    names = list(PLANTED) if args.plant == ["all"] else args.plant
    found = sum([find(name, range(args.seed, args.seed + args.count)) for name in names])
    print(f"{found} of {len(names)} mistakes found")  # noqa: T201
    return 0 if found == len(names) else 1


if __name__ == "__main__":
    status = main()
    gc.freeze()  # else the end of Python looks through all that was imported
    sys.exit(status)
