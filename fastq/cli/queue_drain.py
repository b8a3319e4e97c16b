"""``fastq queue drain``: waits until a queue's work is done, and shows the progress."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

import click

from fastq.cli.commands import Verb
from fastq.cli.destructive import EXIT_SIGNAL
from fastq.cli.parameters import QueueName, json_option, states_option
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.status_line import StatusLine
from fastq.cli.streams import say_failure
from fastq.common.states import TaskState
from fastq.common.times import read_duration
from fastq.inspector import Drain
from fastq.inspector.drain import DRAINABLE, WAITED_FOR
from fastq.inspector.json_records import drain_record
from fastq.terminal.interruption import Interrupted, Interruption
from fastq.text.human import clean, number, plural, span

RATE_OVER_S: Final = 5.0


@click.command(
    "drain",
    cls=Verb,
    examples=["queue drain default --timeout 5m --pause-after", "queue drain default --state active"],
    exits="0 it is empty, 1 the time is up, or it is paused; 2 misused, 130 Ctrl-C, 143 SIGTERM",
)
@click.argument("queue", type=QueueName(), metavar="QUEUE")
@click.option(
    "--timeout",
    metavar="DURATION",
    help="how long to wait at most: seconds, or 5m, 1h30m  [default: no limit]",
)
@states_option(
    DRAINABLE, "a state that must be empty; may be repeated  [default: pending, active, aggregating and retry]"
)
@click.option("--pause-after", is_flag=True, help="pause the queue once it is empty, before a new task is taken")
@json_option
@pass_session
def drain(
    session: Session, queue: str, timeout: str | None, states: Sequence[str], pause_after: bool, as_json: bool
) -> int:
    """Wait until the work in a queue is done; on a timeout, print what remains and exit with code 1.

    The work is done when no task is pending, active, aggregating or to be retried. The command waits for scheduled
    tasks only with --state, and never for archived and completed tasks. It does not stop producers, which may continue
    to enqueue. A paused queue with pending tasks never becomes empty, so it is an error, too.
    """
    limit_s = None if timeout is None else _seconds(timeout)
    watch = _Watch(session)
    with Interruption() as interruption:

        def note(now: Drain) -> None:
            watch.show(now)
            interruption.check()

        try:
            end = session.inspector.drain_queue(
                queue,
                states=states or WAITED_FOR,
                timeout=limit_s,
                pause_after=pause_after,
                progress=note,
            )
        except Interrupted as signal:
            end, code = watch.last, EXIT_SIGNAL + signal.signum
        else:
            code = 0 if end.empty else 1
        finally:
            watch.line.clear()
    if as_json:
        emit(drain_record(end))
    if end.empty and not as_json:
        session.screen.say(f"{_outcome(end)}.")
    elif not end.empty:
        say_failure(f"{'interrupted' if code > 1 else 'time is up'}: {_outcome(end)}")
    return code


def _seconds(text: str) -> float:
    try:
        return read_duration(text)
    except ValueError as error:
        raise click.UsageError(f"--timeout: {error}") from None


def _outcome(end: Drain) -> str:
    done = f"{plural(end.processed, 'run')} in {span(end.waited)}"
    failed = f", {number(end.failed)} of them failed" if end.failed else ""
    state = "is empty" if end.empty else f"has {_listed(end.left)} left"
    return f"{clean(end.queue)} {state}{' and paused' if end.paused and end.empty else ''}: {done}{failed}"


def _listed(sizes: Mapping[TaskState, int]) -> str:
    return ", ".join(f"{number(size)} {state}" for state, size in sizes.items() if size)


class _Watch:
    """The progress of a drain, shown on a terminal."""

    last: Drain

    def __init__(self, session: Session) -> None:
        self.line = StatusLine(session.notes)
        self._session = session
        self._seen: list[tuple[float, int]] = []

    def show(self, now: Drain) -> None:
        """Show the progress; the first time, print a note if no server serves the queue."""
        self.last = now
        if not self._seen and not now.empty:
            if not any(now.queue in server.queues for server in self._session.inspector.servers()):
                say_failure(f"note: no running server serves {clean(now.queue)}")
        elif self._seen:
            self.line.show(self._status(now))
        self._seen.append((time.monotonic(), now.processed))

    def _status(self, now: Drain) -> str:
        now_s = time.monotonic()
        self._seen = [(at, count) for at, count in self._seen if now_s - at <= RATE_OVER_S] or self._seen[-1:]
        then_s, then = self._seen[0]
        rate = (now.processed - then) / max(now_s - then_s, 0.001)
        more = f", {number(round(rate))} a second" if rate >= 1 else ""
        return f"{clean(now.queue)}: {_listed(now.left)} left, {plural(now.processed, 'run')}{more}"
