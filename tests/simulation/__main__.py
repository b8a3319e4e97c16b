"""``python -m tests.simulation``: run seeds, tell the story of one, or shrink one that breaks a promise."""

import argparse
import ctypes
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Final

from tests.simulation import core
from tests.simulation.choice import NAMES, Sites
from tests.simulation.faults import Fault
from tests.simulation.night import run_night, runners_of, seeds_of
from tests.simulation.page import Page, real_s
from tests.simulation.planted import PLANTED, plant
from tests.simulation.size import SIZES, Size

HERE: Final = Path(__file__).parent
BUILT: Final = HERE.parents[1] / "build" / "simulation"
NO_RANDOM_ADDRESSES: Final = 0x0040000
OF_SITES: Final = "what Redis is; any: by the seed; of several, seeds have them in turn"
LIMIT_S: Final = 60
"""Of the processor's time, for one seed."""

sys.modules["opentelemetry"] = None  # type: ignore[assignment]  # redis-py would import it: a sixth of all imports


def build_shim() -> Path:
    """Compile the library that gives processes simulated clocks, unless that was done."""
    shim, source = BUILT / "clock.so", HERE / "clock.c"
    if not shim.exists() or shim.stat().st_mtime < source.stat().st_mtime:
        BUILT.mkdir(parents=True, exist_ok=True)
        part = BUILT / f"clock-{os.getpid()}.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(part), str(source), "-ldl"], check=True)
        part.replace(shim)
    return shim


def start_again(shim: Path) -> None:
    """Replace this process by one on simulated clocks, with fixed hashes and addresses."""
    directory = tempfile.mkdtemp(prefix="fastq-simulation-")
    page = Page(Path(directory, "python.page"))
    ctypes.CDLL(None).personality(NO_RANDOM_ADDRESSES)
    fixed = {"LD_PRELOAD": str(shim), "FASTQ_SIMULATION": str(page.path), "PYTHONHASHSEED": "0"}
    os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, **fixed})


def run_seed(
    seed: int,
    size: Size,
    page: Page,
    sites: Sites,
    *,
    faults: list[Fault] | None = None,
    told: Path | None = None,
    of_task: str = "",
    site_name: str = "",
) -> dict[str, object]:
    """Run a seed in a fork, so that it sees nothing of what another has left in modules."""
    from tests.simulation.world import World  # once for all seeds, but after a mistake is planted

    site = sites.of(seed, site_name)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            report = live(World(seed, size, page, site, faults), told=told, of_task=of_task)
            os.write(writing, json.dumps(report).encode())
        except BaseException:  # noqa: BLE001 - the rest of this stack is the parent's
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    page.switch(False)
    if status:
        return {"seed": seed, "broken": [f"the run ended with status {status}"], "drawn": faults or []}
    found: dict[str, object] = json.loads(data)
    return found


def give_up(*_: object) -> None:
    raise SystemExit(f"the run took {LIMIT_S} s")  # nothing on the way takes it for an error of its own


def live(world: Any, *, told: Path | None, of_task: str) -> dict[str, object]:
    """Let a world happen, in this process."""
    for one in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(one, give_up)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    signal.alarm(10 * LIMIT_S)  # where it waits for redis-server
    gc.disable()  # when it runs depends on what ran before
    try:
        report: dict[str, object] = world.run()
    finally:
        if of_task:
            from tests.simulation.story import story_of

            print(*story_of(of_task, world.story), sep="\n", flush=True)  # noqa: T201
        if told:
            told.write_text("\n".join(world.story) + "\n", "utf-8", errors="backslashreplace")
    return report | {"cpu_s": round(time.process_time(), 2), "drawn": world.faults}


def shrink(seed: int, size: Size, page: Page, sites: Sites) -> list[Fault]:
    """Take away faults one by one for as long as a promise stays broken; return those that are left."""
    left = [Fault(*one) for one in run_seed(seed, size, page, sites)["drawn"]]  # type: ignore[attr-defined]
    for fault in list(left):
        fewer = [one for one in left if one is not fault]
        if run_seed(seed, size, page, sites, faults=fewer)["broken"]:
            left = fewer
    return left


def find_planted(names: list[str], seeds: range, size: Size, page: Page, sites: Sites) -> int:
    """Tell for each mistake how many seeds it took to find it."""
    missed = 0
    for name in names:
        for seed in seeds:
            sites.of(seed, PLANTED[name].site)  # started here, it is also stopped
        child = os.fork()  # a mistake is planted before its module is imported
        if not child:
            plant(PLANTED[name])
            os._exit(0 if is_found(name, seeds, size, page, sites) else 1)
        missed += os.waitpid(child, 0)[1] != 0
    print(f"{len(names) - missed} of {len(names)} mistakes found")  # noqa: T201
    return 1 if missed else 0


def is_found(name: str, seeds: range, size: Size, page: Page, sites: Sites) -> bool:
    """Tell how many seeds it takes to find the mistake that is planted."""
    for tried, seed in enumerate(seeds, 1):
        broken: Any = run_seed(seed, size, page, sites, site_name=PLANTED[name].site)["broken"]
        if broken:
            print(f"{name}: seed {seed}, {tried} seeds: {broken[0][:150]}", flush=True)  # noqa: T201
            return True
    print(f"{name}: NOT FOUND in {len(seeds)} seeds", flush=True)  # noqa: T201
    return False


def end(page: Page, sites: Sites) -> None:
    """Stop Redis, and remove what the processes have shared."""
    gc.freeze()  # else the end of Python looks through all that was imported
    sites.stop()
    page.switch(False)
    shutil.rmtree(page.path.parent)


def run_seeds(args: argparse.Namespace, page: Page, sites: Sites) -> int:
    """Run one seed after the other until Ctrl-C or the last, and tell which broke a promise."""
    began_s, simulated_s, seen, broken = real_s(), 0.0, 0, 0
    try:
        while (args.count == 0 or seen < args.count) and real_s() - began_s < args.within:
            seed = args.seed + seen
            site = args.site[seed % len(args.site)]
            report = run_seed(seed, args.size, page, sites, told=args.story, of_task=args.task, site_name=site)
            seen += 1
            simulated_s += float(report.get("simulated_s", 0.0))  # type: ignore[arg-type]
            if args.json:
                print(json.dumps({key: value for key, value in report.items() if key != "drawn"}), flush=True)  # noqa: T201
            if report["broken"]:
                broken += 1
                print(f"seed {seed} breaks:", *report["broken"], sep="\n  ", flush=True)  # type: ignore[misc]  # noqa: T201
                if args.shrink:
                    print("with these faults:", *shrink(seed, args.size, page, sites), sep="\n  ")  # noqa: T201
    except KeyboardInterrupt:
        pass
    took_s = real_s() - began_s
    print(f"{seen} seeds, {broken} broken; {simulated_s / 3600:.1f} simulated hours in {took_s:.0f} s")  # noqa: T201
    return 1 if broken else 0


def answer(args: argparse.Namespace, page: Page, sites: Sites) -> int:
    """Run the seeds that another process asks for, each with its site, until it asks no more."""
    for line in sys.stdin:
        seed, site = line.split()
        report = run_seed(int(seed), args.size, page, sites, site_name=site)
        print(json.dumps(report | {"site": site}), flush=True)  # noqa: T201
    return 0


def main() -> int:
    gc.disable()  # a fifth of what the imports take; a seed runs without it, too
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds; 0 for all until Ctrl-C")
    parser.add_argument("--within", type=float, default=1e9, help="begin no seed after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run seeds at once, each on a core")
    parser.add_argument("--asked", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--size", choices=SIZES, default="full", help="short: a third of the tasks and time, more faults"
    )
    parser.add_argument("--tasks", type=int, help="how many are enqueued")
    parser.add_argument("--site", choices=NAMES, nargs="+", default=["single"], help=OF_SITES)
    parser.add_argument("--story", type=Path, help="write the trace of the seed to this file")
    parser.add_argument("--task", default="", help="tell the story of one task: who did what and when, and all faults")
    parser.add_argument("--shrink", action="store_true", help="tell which faults a broken promise needs")
    parser.add_argument(
        "--plant",
        default="",
        metavar="NAME",
        choices=[*PLANTED, "all"],
        help="see how many seeds find a mistake of planted.toml, or all of them",
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each seed")
    args = parser.parse_args()
    args.size = SIZES[args.size]
    if args.tasks:
        args.size = args.size._replace(tasks=args.tasks)
    if args.jobs > 1 and (args.story or args.task or args.shrink or args.plant):
        parser.error("--story, --task, --shrink and --plant need --jobs 1")
    if "FASTQ_SIMULATION" not in os.environ:
        shim = build_shim()
        if args.jobs > 1 and not args.asked:
            seeds = seeds_of(args.seed, args.count, args.site)
            words = [sys.executable, "-m", "tests.simulation", *sys.argv[1:], "--asked"]
            return run_night(runners_of(words, args.jobs), seeds, args.within, tells_all=args.json)
        start_again(shim)
    core.stay()  # Redis with it: a wake-up across cores takes a fifth of all CPU
    page = Page(Path(os.environ["FASTQ_SIMULATION"]))
    sites = Sites(args.site[0], page.path.parent, BUILT / "clock.so")
    try:
        if args.asked:
            return answer(args, page, sites)
        if not args.plant:
            return run_seeds(args, page, sites)
        names = list(PLANTED) if args.plant == "all" else [args.plant]
        return find_planted(names, range(args.seed, args.seed + args.count), args.size, page, sites)
    finally:
        end(page, sites)


if __name__ == "__main__":
    sys.exit(main())
