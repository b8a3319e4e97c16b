"""``fastq lane``: lists lanes and why they wait, limits, pauses, resumes and drains them."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import click

from fastq.cli.acting import Acting
from fastq.cli.commands import EXITS_OF_MANY, Noun
from fastq.cli.destructive import EXIT_SIGNAL
from fastq.cli.lane_shown import LANE_COLUMNS, lane_cells
from fastq.cli.parameters import Parsed, json_option, queue_option
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.status_line import StatusLine
from fastq.cli.streams import say_failure
from fastq.cli.tables import table
from fastq.common.times import read_duration
from fastq.errors import QueueNotFoundError
from fastq.inspector import LaneInfo, LaneState
from fastq.inspector.json_records import lane_record
from fastq.terminal.interruption import Interrupted, Interruption
from fastq.text.human import clean, number, plural
from fastq.text.lanes import lane_name
from fastq.wire.limit import Limit, check_limited

PAGE: Final = 1_000
_LANE: Final = Parsed("lane", check_limited)
_LIMIT: Final = Parsed("limit", Limit.parse)
_lanes: Final = click.argument("lanes", type=_LANE, nargs=-1, required=True, metavar="LANE...")

_STAYS: Final = " This stays, as the queue has tasks: remove it again once it is empty, unless it is to have lanes."

_EPILOG: Final = """\b
Examples:
  fastq lane ls --queue crawl
  fastq lane limit '*' '2, 5/s' --queue crawl
  fastq lane limit example.com 8 --queue crawl

fastq lane limit --help says what a LANE and a LIMIT are."""

lane = Noun("lane", help="List lanes and why their tasks wait; limit, pause, resume and drain them.", epilog=_EPILOG)


@lane.verb("ls", "list", examples=["lane ls --queue crawl", "lane ls example.com 'openai:*' --queue crawl --json"])
@click.argument("lanes", type=_LANE, nargs=-1, metavar="[LANE...]")
@queue_option
@json_option
@pass_session
def ls(session: Session, lanes: Sequence[str], queue: str, as_json: bool) -> None:
    """List the lanes of a queue that have tasks or limits, and why their tasks wait; or only the given ones."""
    infos = [session.inspector.get_lane(queue, each) for each in lanes] if lanes else [*_all(session, queue)]
    if not infos and queue not in session.inspector.queues():
        raise QueueNotFoundError(queue)
    if as_json:
        emit([lane_record(info) for info in infos])
    elif not infos:
        session.screen.say(f"There are no lanes in {clean(queue)}.")
    else:
        table(session.screen, LANE_COLUMNS, map(lane_cells, infos))
    if any(info.waiting for info in infos):
        _note_servers(session, queue)


def _all(session: Session, queue: str) -> Iterator[LaneInfo]:
    """Return each lane once."""
    found: dict[str, LaneInfo] = {}
    cursor = ""
    while True:
        page, cursor = session.inspector.lanes(queue, cursor=cursor, page_size=PAGE)
        found |= {info.lane: info for info in page}
        if not cursor:
            return iter(sorted(found.values(), key=lambda info: info.lane))


def _note_servers(session: Session, queue: str) -> None:
    if not any(queue in server.queues for server in session.inspector.servers()):
        say_failure(f"note: no running server serves {clean(queue)}")


@lane.verb(
    "limit",
    examples=[
        "lane limit '*' '2, 5/s' --queue crawl",
        "lane limit openai:acme 8 --queue llm",
        "lane limit 'openai:*' 500/m --queue llm",
        "lane limit '*' '1, strict' --queue orders",
        "lane limit example.com --remove --queue crawl",
        "lane limit --whole-queue 100 --queue crawl",
    ],
)
@click.argument("words", nargs=-1, metavar="LANE LIMIT")
@click.option("--remove", is_flag=True, help="in place of LIMIT: remove the lane's own limit")
@click.option("--whole-queue", is_flag=True, help="in place of LANE: limit how much of the whole queue runs at once")
@queue_option
@json_option
@pass_session
def limit(session: Session, words: Sequence[str], remove: bool, whole_queue: bool, queue: str, as_json: bool) -> None:
    """Limit a lane at once on all servers; tasks that ran before its first concurrency are not counted.

    LANE is its name, '*' for each lane without a limit of its own, or 'openai:*' for all lanes that begin with openai:
    together. LIMIT is a number of tasks at once, a rate, or both: 2, 5/s, '2, 500/m, burst 10, weight 3', 'no limit'.
    It may name an order: '1, strict' one after the other, also through retries; lifo the newest first; deadline the
    earliest deadline first.
    """
    wanted = [name for name, is_given in (("LANE", not whole_queue), ("LIMIT", not remove)) if is_given]
    if len(words) != len(wanted):
        raise click.UsageError(f"expected {' and '.join(wanted) or 'neither LANE nor LIMIT'}, not {' '.join(words)!r}")
    given = dict(zip(wanted, words, strict=True))
    its = check_limited(given["LANE"]) if "LANE" in given else None
    new = Limit.parse(given["LIMIT"]) if "LIMIT" in given else None
    was_there = session.inspector.set_limit(queue, its, new)
    info = session.inspector.get_lane(queue, its)
    if as_json:
        emit(lane_record(info))
    elif new is None and not was_there:
        session.screen.say(f"{lane_name(info)} of {clean(queue)} has no limit of its own.")
    else:
        stays = new is None and info.has_own_limit
        session.screen.say(f"{lane_name(info)} of {clean(queue)}: {info.limit or 'no limit'}.{_STAYS if stays else ''}")


@lane.verb(
    "pause", examples=["lane pause openai:acme --queue llm", "lane pause 'openai:*' -q llm"], exits=EXITS_OF_MANY
)
@_lanes
@queue_option
@json_option
@pass_session
def pause(session: Session, lanes: Sequence[str], queue: str, as_json: bool) -> int:
    """Stop servers from starting tasks of lanes; running tasks go on, and limits stay."""
    return (
        Acting(session, as_json=as_json).each(lanes, partial(session.inspector.pause_lane, queue), "Paused {}.").end()
    )


@lane.verb("resume", "unpause", examples=["lane resume openai:acme --queue llm"], exits=EXITS_OF_MANY)
@_lanes
@queue_option
@json_option
@pass_session
def resume(session: Session, lanes: Sequence[str], queue: str, as_json: bool) -> int:
    """Let servers start tasks of lanes again."""
    act = partial(session.inspector.resume_lane, queue)
    return Acting(session, as_json=as_json).each(lanes, act, "Resumed {}.").end()


@lane.verb(
    "drain",
    examples=["lane drain openai:acme --queue llm --timeout 5m"],
    exits="0 it is empty, 1 the time is up, or it is paused; 2 misused, 130 Ctrl-C, 143 SIGTERM",
)
@click.argument("name", type=_LANE, metavar="LANE")
@queue_option
@click.option(
    "--timeout",
    type=Parsed("duration", read_duration),
    metavar="DURATION",
    help="how long to wait at most: seconds, or 5m, 1h30m  [default: no limit]",
)
@json_option
@pass_session
def drain(session: Session, name: str, queue: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a lane has no waiting and no running tasks. Producers may continue to enqueue. The command does not
    wait for scheduled tasks and retries, nor for running tasks of a lane without a concurrency.
    """
    line, code = StatusLine(session.notes), 0
    info: LaneInfo | None = None
    with Interruption() as interruption:

        def note(now: LaneInfo) -> None:
            nonlocal info
            if info is None and now.waiting:
                _note_servers(session, queue)
            info = now
            line.show(_left(now))
            interruption.check()

        try:
            info = session.inspector.drain_lane(queue, name, timeout=timeout, progress=note)
        except Interrupted as signal:
            code = EXIT_SIGNAL + signal.signum
        finally:
            line.clear()
    assert info is not None  # ``note`` was called at least once
    if as_json:
        emit(lane_record(info))
    if not info.waiting and not info.running:
        if not as_json:
            session.screen.say(f"{lane_name(info)} is empty.")
        return code
    what = "interrupted" if code else "it is paused" if info.state is LaneState.PAUSED else "time is up"
    say_failure(f"{what}: {_left(info)}")
    return code or 1


def _left(info: LaneInfo) -> str:
    running = f", {number(info.running)} running" if info.running else ""
    return f"{lane_name(info)}: {plural(info.waiting, 'task')} waiting{running}"
