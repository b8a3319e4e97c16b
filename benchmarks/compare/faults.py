"""``python -m benchmarks.compare.faults``: what queues lose and repeat when something dies, and how soon they go on.

Each contender of ``benchmarks.compare`` is struck by each fault once, on a Redis of its own, while it works on tasks
that take 0.2 s and write down each begin and end in a file. A worker that has ended is started again at once, as a
supervisor would. Several are struck side by side: the times are those of leases and visibility timeouts.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Final

from benchmarks.compare.contender import Contender, Place
from benchmarks.compare.contenders import CONTENDERS
from benchmarks.compare.environment import BUILD, programs_of, version
from benchmarks.compare.family import Family
from benchmarks.compare.meter import Meter
from benchmarks.compare.mortal import MortalRedis, mortal_redis
from benchmarks.compare.outcome import TASKS, Event, Fault, Outcome, outcome_of
from benchmarks.compare.producer import Producer, TurnError
from benchmarks.compare.record import machine
from benchmarks.compare.surroundings import Surroundings, variables
from tests.redis_servers import server_program

NOT_BROKEN: Final = ("bare", "brpop", "asynq-64", "asynq-256", "procrastinate", "oban")
"""Those that are no queue, one more of a kind, or without the Redis that is broken here."""
WITHIN_S: Final = 180.0
FROZEN_S: Final = 90.0
"""How long a worker is stopped, with another beside it: longer than leases of 30 s and the search for ended ones."""
PATIENCE_S: Final = 60.0
QUIET_S: Final = 90.0
"""How long nothing has to run, and nothing be in Redis, until what has not run counts as lost."""
DONE_S: Final = 5.0
"""The same, once all have run."""
WARM_UP_S: Final = 5.0
POLL_S: Final = 0.02
SIDE_BY_SIDE: Final = 8


class _Strike:
    """One contender under one fault."""

    def __init__(self, contender: Contender, program: Path, fault: Fault, halt: threading.Event) -> None:
        self._contender = contender
        self._program = program
        self._fault = fault
        self._halt = halt
        directory = BUILD / "logs"
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"fault-{contender.name}-{fault.name.lower()}.meter"
        self._meter = Meter.create(self._path)
        self._meter.ledger_path.unlink(missing_ok=True)

    def outcome(self) -> Outcome | None:
        """Strike; None if the contender has nothing of that sort."""
        try:
            with self._path.with_suffix(".log").open("wb") as log, mortal_redis() as redis:
                place = Place(self._program, redis.port)
                around = Surroundings(
                    variables(self._path, place.url, self._contender.variables), self._path.parent, log
                )
                return self._run(place, around, redis)
        except (TurnError, OSError, AssertionError) as error:
            return Outcome(self._contender.name, self._fault, failure=str(error))
        finally:
            for path in (self._path, self._meter.late_path, self._meter.ledger_path):
                path.unlink(missing_ok=True)

    def _run(self, place: Place, around: Surroundings, redis: MortalRedis) -> Outcome | None:
        with (
            Producer(self._contender.produce(place), around, PATIENCE_S) as producer,
            _started(self._contender, place, around) as families,
        ):
            producer.wait_until_ready()
            self._warm_up(producer)
            for number in range(TASKS):
                producer.each(f"track:{number}", 1)
            self._wait(lambda: len(self._running()) > 1, "tasks to strike")
            if not self._strike(families[-1], redis):
                return None
            at_ns = time.monotonic_ns()  # only now: to find all processes of a worker takes a while
            restarts = self._settle(families, place, around, redis)
            left = self._left(redis)
        return outcome_of(self._contender.name, self._fault, self._events(), at_ns, left, restarts)

    def _strike(self, family: Family, redis: MortalRedis) -> bool:
        """Carry out the fault; return whether there was something to strike."""
        match self._fault:
            case Fault.CHILD:
                victims = [event.pid for event in self._running() if not family.is_root(event.pid)]
                if victims:
                    os.kill(victims[0], signal.SIGKILL)
                return bool(victims)
            case Fault.WORKER:
                family.kill()
            case Fault.FROZEN:
                family.freeze()
            case Fault.CLIENTS:
                with redis.client() as db:
                    db.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            case Fault.RESTART:
                redis.restart()
            case Fault.FAIL_OVER:
                redis.fail_over()
        return True

    def _warm_up(self, producer: Producer) -> None:
        producer.each("noop", 10)
        self._wait(lambda: self._meter.count() >= 10, "the first tasks")
        until_s = time.monotonic() + WARM_UP_S
        while self._meter.processes() < self._contender.handlers and time.monotonic() < until_s:
            before = self._meter.count()
            producer.each("noop", 10)
            self._wait(lambda count=before + 10: self._meter.count() >= count, "tasks")

    def _settle(self, families: list[Family], place: Place, around: Surroundings, redis: MortalRedis) -> int:
        """Wait until all have run, or nothing more will; start what has ended again, and one beside what stands."""
        began_s = quiet_s = time.monotonic()
        count, restarts, frozen = 0, 0, self._fault is Fault.FROZEN
        if frozen:
            families.append(Family(self._contender.work(place), around))
        while (now_s := time.monotonic()) < began_s + WITHIN_S:
            if frozen and now_s > began_s + FROZEN_S:
                families[0].thaw()
                frozen, quiet_s = False, now_s
            if families[-1].has_ended():
                restarts += 1
                families[-1].stop()
                families.append(Family(self._contender.work(place), around))
            events = self._events()
            is_done = len({event.id for event in events if event.what == "ended"}) == TASKS
            if len(events) != count or self._left(redis):
                count, quiet_s = len(events), now_s
            elif not frozen and now_s > quiet_s + (DONE_S if is_done else QUIET_S):
                break
            self._pause(0.1)
        return restarts

    def _left(self, redis: MortalRedis) -> int:
        with redis.client() as db:
            return self._contender.left(db) + self._contender.put_off(db)

    def _events(self) -> list[Event]:
        if not self._meter.ledger_path.exists():
            return []
        rows = (line.split() for line in self._meter.ledger_path.read_text().splitlines())
        return [Event(what, id, int(pid), int(at_ns)) for what, id, pid, at_ns in rows]

    def _running(self) -> list[Event]:
        """Return the begins that no end follows, the latest first."""
        last = {event.id: event for event in self._events()}
        return sorted((event for event in last.values() if event.what == "began"), key=lambda event: -event.at_ns)

    def _wait(self, is_so: Any, what: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > until_s:
                raise TurnError(f"{what} did not come within {PATIENCE_S:.0f} s")
            self._pause(POLL_S)

    def _pause(self, seconds: float) -> None:
        if self._halt.wait(seconds):
            raise TurnError("interrupted")


@contextmanager
def _started(contender: Contender, place: Place, around: Surroundings) -> Iterator[list[Family]]:
    """Start a worker; give it in a list to which its successors are added."""
    families = [Family(contender.work(place), around)]
    try:
        yield families
    finally:
        for family in families:
            family.stop()


# The table ----------------------------------------------------------------------------------------------------------


def markdown(record: dict[str, Any]) -> str:
    """Return the table: a row for each contender, a column for each fault."""
    lines = [
        "Tasks lost / run twice / seconds until the last orphan ran again / until all had run\n",
        f"| queue | {' | '.join(Fault)} |",
        "|---|" + "---|" * len(Fault),
    ]
    for entry in record["entries"]:
        cells = [_cell(entry["outcomes"].get(fault.name)) for fault in Fault]
        name = f"**{entry['title']}**" if entry["name"] == "fastq" else entry["title"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", *(f"- {e['title']} {e['version']}: {e['guarantee']}; {e['detail']}." for e in record["entries"])]
    told = record["machine"]
    where = f"{told['time'][:10]}, commit {told['commit']}, Redis {told['redis']}"
    lines += ["", f"{record['tasks']} tasks of 0.2 s a fault; {where}"]
    return "\n".join(lines) + "\n"


def _cell(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "-"
    if outcome["failure"]:
        return str(outcome["failure"])
    orphans = f"{outcome['orphans_s']:.1f}" if outcome["orphans_s"] else "-"
    done = "-" if outcome["lost"] else f"{outcome['done_s']:.0f}"
    if outcome["waiting"]:
        done = f"{outcome['waiting']} not within {WITHIN_S:.0f}"
    return f"{outcome['lost']} / {outcome['repeated']} / {orphans} / {done}"


# The command --------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Strike all, write the table and the JSON; return the exit status."""
    parser = argparse.ArgumentParser("benchmarks.compare.faults", description="Compare what queues lose.")
    parser.add_argument("--only", default="", help="names with commas between them")
    parser.add_argument("--faults", help=f"of {', '.join(fault.name for fault in Fault)}, with commas between them")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--table", type=Path, help="write the table here, as Markdown")
    options = parser.parse_args(arguments)
    faults = [Fault[name] for name in options.faults.split(",")] if options.faults else list(Fault)
    names = set(filter(None, options.only.split(",")))
    wanted = [one for one in CONTENDERS if one.name not in NOT_BROKEN and (not names or one.name in names)]
    if unknown := names - {one.name for one in wanted}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    record = {"tasks": TASKS, "machine": machine(server_program()), "entries": _entries(wanted, faults)}
    text = markdown(record)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    if options.table:
        options.table.write_text(text)
    return 0 if record["entries"] else 1


def _entries(wanted: Sequence[Contender], faults: Sequence[Fault]) -> list[dict[str, Any]]:
    programs = programs_of(wanted)
    halt = threading.Event()
    strikes = [(contender, fault) for fault in faults for contender in programs]

    def strike(pair: tuple[Contender, Fault]) -> Outcome | None:
        contender, fault = pair
        outcome = _Strike(contender, programs[contender], fault, halt).outcome()
        print(f"{contender.title}: {fault}: {outcome or 'it has none'}", file=sys.stderr, flush=True)
        return outcome

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        try:
            found = list(pool.map(strike, strikes))
        finally:
            halt.set()
            pool.shutdown(cancel_futures=True)
    outcomes = dict(zip(strikes, found, strict=True))
    return [_entry(contender, {fault: outcomes[contender, fault] for fault in faults}) for contender in programs]


def _entry(contender: Contender, outcomes: dict[Fault, Outcome | None]) -> dict[str, Any]:
    told = {name: getattr(contender, name) for name in ("name", "title", "guarantee", "detail", "settings")}
    of_fault = {fault.name: asdict(outcome) for fault, outcome in outcomes.items() if outcome is not None}
    return {**told, "version": version(contender), "outcomes": of_fault}


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End as on Ctrl-C, so that everything is cleaned up."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    with suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
