"""``fastq plan``: what a load needs and which limit it reaches next, computed from the figures of ``fastq bench``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from fastq.cli.commands import SETTINGS
from fastq.cli.numbers import IntegerRange, NumberRange
from fastq.cli.parameters import Parsed, json_option
from fastq.cli.plan_records import plan_record
from fastq.cli.plan_report import show_plan
from fastq.cli.session import emit
from fastq.errors import FastqError
from fastq.planning.load import Load, parse_load
from fastq.planning.plan import Wish, make_plan
from fastq.planning.profile import default_path, load_profile
from fastq.planning.units import parse_count, parse_link, parse_rate, parse_size, parse_span
from fastq.terminal.screen import Screen

F = TypeVar("F", bound=Callable[..., Any])

_EPILOG: Final = """\b
Examples:
  fastq plan --rate 5000/s --duration 20ms --payload 2kB
  fastq plan --rate 5000/s --duration 20ms --cpu 5ms --payload 2kB --burst 1M --servers 8 --cores 16
  fastq plan --load rate=300k/h,duration=2s,payload=10kB --load rate=9/s,duration=8s,payload=1kB,async

docs/planning.md has the method, its formulas and its limits.
Exit codes: 0 done, 1 there is no profile, or it cannot be read; 2 misused."""


_RATE, _SPAN = Parsed("rate", parse_rate), Parsed("duration", parse_span)
_SIZE, _COUNT, _LINK = Parsed("size", parse_size), Parsed("count", parse_count), Parsed("speed", parse_link)


_LOAD: Final = (
    ("--rate", "N/s", _RATE, "tasks a second (/min, /h, /d): 5000/s, 300k/h"),
    ("--duration", "TIME", _SPAN, "run time of a handler: 20ms, 1.5s"),
    ("--cpu", "TIME", _SPAN, "CPU time of that  [default: all; async: none]"),
    ("--payload", "SIZE", _SIZE, "size of a task: 100B, 2kB"),
    ("--retention", "TIME", _SPAN, "retention of completed tasks"),
    ("--result", "SIZE", _SIZE, "size of the result that is kept with a task"),
)
_FLEET: Final = (
    ("--burst", "N", _COUNT, "this many tasks of the mix at once: 250k, 1M"),
    ("--within", "TIME", _SPAN, "time limit for the burst"),
    ("--servers", "N", IntegerRange(1, 100_000), "number of servers  [default: as needed]"),
    ("--cores", "N", NumberRange(0.1, 4_096), "cores per server  [default: as measured]"),
    ("--children", "N", IntegerRange(1, 4_096), "children per server  [default: as needed]"),
    ("--async-concurrency", "N", IntegerRange(1, 100_000), "coroutines that run at once per child  [default: 100]"),
    ("--child-memory", "SIZE", _SIZE, "memory of the app itself, per child"),
    ("--redis-memory", "SIZE", _SIZE, "memory limit of Redis  [default: its maxmemory]"),
    ("--network", "SPEED", _LINK, "network speed of Redis' machine  [default: 10Gbit]"),
    ("--utilization", "SHARE", NumberRange(0, 1, min_open=True), "how busy any part may be  [default: 0.7]"),
    ("--profile", "FILE", click.Path(path_type=Path), "profile of fastq bench  [default: this machine's last]"),
)


def _options(rows: tuple[tuple[str, str, Any, str], ...]) -> Callable[[F], F]:
    def give(command: F) -> F:
        for flag, metavar, kind, help in reversed(rows):
            command = click.option(flag, metavar=metavar, type=kind, help=help)(command)
        return command

    return give


@click.command("plan", context_settings=SETTINGS, epilog=_EPILOG)
@_options(_LOAD)
@click.option("--async", "is_async", is_flag=True, help="the handler is async def")
@click.option(
    "--load",
    "more",
    multiple=True,
    metavar="NAME=VALUE,...",
    type=Parsed("load", parse_load),
    help="another kind of task: rate=,duration=,payload= and, as above, cpu=,retention=,result=,async",
)
@_options(_FLEET)
@click.option("--shared", is_flag=True, help="Redis runs on the same machine, the only server")
@json_option
def plan(as_json: bool, profile: Path | None, **given: Any) -> int:
    """Estimate what a load needs: children, servers, Redis; how long bursts take; which limit comes next.

    The estimates are computed from a profile that fastq bench has measured on a machine of the planned kind. Each
    figure is printed with its source.
    """
    try:
        wish = _wish(given)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        facts = load_profile(profile or default_path())
    except ValueError as error:
        raise FastqError(str(error)) from None
    found = make_plan(facts, wish)
    if as_json:
        emit(plan_record(facts, found))
    else:
        show_plan(Screen(), facts, found)
    return 0


def _wish(given: dict[str, Any]) -> Wish:
    names = ("burst", "within", "servers", "cores", "children", "async_concurrency", "child_memory", "redis_memory")
    fleet = {name: given[name] for name in (*names, "utilization") if given[name] is not None}
    if given["network"] is not None:
        fleet["link"] = given["network"]
    return Wish([*_single(given), *given["more"]], shares_redis=given["shared"], **fleet)


def _single(given: dict[str, Any]) -> list[Load]:
    """Return the load that the options other than --load describe, if any of them is given."""
    needed = {name: given[name] for name in ("rate", "duration", "payload")}
    others = {name: given[name] for name in ("cpu", "retention", "result") if given[name] is not None}
    if given["burst"] and needed["rate"] is None and needed["duration"] is not None:
        needed["rate"] = 0.0  # only the burst
    missing = [f"--{name}" for name, value in needed.items() if value is None]
    if len(missing) == len(needed) and not others and not given["is_async"]:
        if not given["more"]:
            raise ValueError("there is no load: --rate 5000/s --duration 20ms --payload 2kB, or --load")
        return []
    if missing:
        raise ValueError(f"{' and '.join(missing)} is missing: a load is --rate, --duration and --payload")
    return [Load(**needed, **others, is_async=given["is_async"])]
