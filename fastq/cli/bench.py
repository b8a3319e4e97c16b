"""``fastq bench``: measures this machine and its Redis, and saves the figures for ``fastq plan``."""

import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from fastq.cli.commands import Verb
from fastq.cli.destructive import confirm, yes_option
from fastq.cli.figures import microseconds, percent
from fastq.cli.numbers import IntegerRange, NumberRange
from fastq.cli.parameters import json_option
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.streams import say_failure
from fastq.cli.tables import Column, facts, heading, table
from fastq.errors import FastqError
from fastq.planning.measure import check_memory, measure_profile
from fastq.planning.profile import Profile, default_path, save
from fastq.planning.samples import Extent
from fastq.planning.testbed import NEEDED, PREFIX
from fastq.terminal.interruption import Interrupted, Interruption
from fastq.terminal.screen import Screen
from fastq.text.human import clean, number, size

EXIT_SIGNAL: Final = 128
_NOISE: Final = 0.1
"""Other processes disturb the measurement if they use more than this share of the cores."""


@click.command(
    "bench",
    cls=Verb,
    examples=["bench", "bench --seconds 20 --output here.json --yes", "bench --redis embedded://"],
    exits="0 done, 1 failed, 2 misused, 130 Ctrl-C, 143 SIGTERM",
)
@click.option(
    "--seconds",
    type=NumberRange(2, 3_600),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="roughly how long to measure",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="where to save the profile  [default: ~/.local/state/fastq/bench-HOST.json]",
)
@click.option(
    "--children", type=IntegerRange(1, 64), metavar="N", help="children to measure with  [default: the cores]"
)
@yes_option
@json_option
@pass_session
def bench(session: Session, seconds: float, output: Path | None, children: int | None, yes: bool, as_json: bool) -> int:
    """Measure this machine and its Redis, for fastq plan.

    It measures CPU, memory and bytes a task, by payload; the cost of waking up; and how far work overlaps. It starts a
    fastq server on a queue of its own, which is deleted at the end, also after Ctrl-C. Redis gets up to 80 MB of tasks
    and is kept busy meanwhile. Nothing else in Redis is touched; if it holds any keys, the command asks first.
    """
    extent = Extent.of(seconds)
    _look(session, extent, yes=yes)
    path = output or default_path()
    try:
        with Interruption() as interruption:
            profile = measure_profile(session.url, extent, children, interruption.check, _progress(session))
    except Interrupted as error:
        say_failure("interrupted; the queue of the measurement was deleted")
        return EXIT_SIGNAL + error.signum
    try:
        save(profile, path)
    except OSError as error:
        raise FastqError(f"cannot write {path}: {error.strerror}") from None
    if as_json:
        emit(profile.as_record())
    else:
        _show(session.screen, profile, path)
    return 0


def _look(session: Session, extent: Extent, *, yes: bool) -> None:
    """Check that this machine and Redis can be measured, and ask first if other programs may use this Redis."""
    if sys.platform != "linux":
        raise FastqError(f"fastq bench reads /proc, so it needs Linux; this is {platform.system()}")
    if session.is_cluster:
        raise FastqError("fastq bench measures one Redis; name one that is like the nodes of the cluster")
    info = session.inspector.redis_info()
    if missing := [name for name in NEEDED if name not in info]:
        raise FastqError(f"this Redis does not report {' and '.join(missing)} in its INFO, which the measurement needs")
    check_memory(int(info.get("maxmemory", 0)), int(info["used_memory"]), extent)
    keys = sum(int(value.split(",")[0].partition("=")[2]) for name, value in info.items() if _is_database(name))
    left = [queue for queue in session.inspector.queues() if queue.startswith(PREFIX)]
    if left:
        say_failure(
            f"another fastq bench is running, or a killed one left its queue: fastq queue rm --force {' '.join(left)}"
        )
    if keys:
        confirm(
            f"Redis holds {number(keys)} keys. This puts up to {extent.megabytes} MB into it, in a queue of its own, "
            f"and keeps it busy for about {extent.seconds:.0f} s.",
            yes=yes,
        )


def _is_database(name: str) -> bool:
    return name.startswith("db") and name[2:].isdigit()


def _progress(session: Session) -> Callable[[str], None]:
    screen = session.notes

    def say(text: str) -> None:
        if screen.is_live:
            screen.show([f"{text} …" if text else ""])

    return say


def _show(screen: Screen, profile: Profile, path: Path) -> None:
    machine, redis, server = profile.machine, profile.redis, profile.server
    where = "on this machine" if redis.is_here else "on another machine"
    heading(
        screen, f"{clean(machine.host)}: {machine.cores:g} cores, {size(machine.memory_bytes)}; {redis.version} {where}"
    )
    facts(
        screen,
        [
            ("Round trip to Redis", microseconds(redis.round_trip_s)),
            ("No-op tasks", f"{number(round(server.no_op_rate))}/s on {profile.children} children"),
            ("Computing with all cores busy", f"{machine.crowding:.2f} x the cost alone"),
            ("Overlap of main process and Redis", percent(max(0.0, server.overlap))),
            ("An idle server", f"{server.idle_commands_a_s:.1f} commands/s"),
            (
                "Memory of a server, of each child",
                f"{size(server.main_memory_bytes)}, {size(server.child_memory_bytes)}",
            ),
        ],
    )
    screen.say()
    _show_costs(screen, profile)
    screen.say()
    screen.say(f"Saved to {path}; fastq plan reads it.")
    if machine.others_cores > _NOISE * machine.cores:
        screen.say(
            f"Other processes used {machine.others_cores:.1f} cores meanwhile: the gaps and the overlap are worse than "
            "on a quiet machine, the CPU per task less so.",
            fg="yellow",
        )


_COST_COLUMNS: Final = (
    Column("A TASK OF"), *(Column(title, right=True) for title in (
        "ENQUEUE ONE, REDIS", "ENQUEUE MANY, REDIS", "PROCESS, REDIS", "MAIN PROCESS", "CHILD", "IN REDIS",
    )),
)  # fmt: skip


def _show_costs(screen: Screen, profile: Profile) -> None:
    costs = profile.costs
    curves = (
        costs.enqueue_one_redis, costs.enqueue_many_redis, costs.process_redis, costs.process_main, costs.process_child,
    )  # fmt: skip
    rows = []
    for payload, in_redis in costs.redis_memory.points:
        us = [microseconds(curve.at(payload)) for curve in curves]
        rows.append([f"{payload:,.0f} B", *us, size(round(in_redis))])
    table(screen, _COST_COLUMNS, rows)
