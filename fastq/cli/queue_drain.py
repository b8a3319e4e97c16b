"""``fastq queue drain``: waits until a queue's work is done, and shows how it goes."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import click

from fastq.cli.bulk import EXIT_SIGNAL
from fastq.cli.commands import QueueName, Verb, json_option, state_choice
from fastq.cli.human import clean, number, span
from fastq.cli.progress import StatusLine
from fastq.cli.session import Session, emit, pass_session, say_failure
from fastq.cli.times import read_duration
from fastq.demo.interruption import Interrupted, Interruption
from fastq.errors import FastqError, QueueStateError
from fastq.inspector.drain import Remaining, remaining
from fastq.states import TaskState

__all__ = ["drain"]

POLL_S: Final = 0.25
"""How often is looked, at the least; where a look takes long, since there are many groups, it is less often."""
LOOK_SHARE: Final = 0.1
RATE_OVER_S: Final = 5.0
_WORK: Final = (TaskState.PENDING, TaskState.ACTIVE, TaskState.AGGREGATING, TaskState.SCHEDULED, TaskState.RETRY)
_WAITED_FOR: Final = (TaskState.PENDING, TaskState.ACTIVE, TaskState.AGGREGATING, TaskState.RETRY)


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
    help="how long to wait at most: seconds, or 5m, 1h30m  [default: as long as it takes]",
)
@click.option(
    "--state",
    "-s",
    "states",
    type=state_choice(*_WORK),
    multiple=True,
    help="a state that must be empty; may be repeated  [default: pending, active, aggregating and retry]",
)
@click.option("--pause-after", is_flag=True, help="pause the queue once it is empty, before anything new is taken")
@json_option
@pass_session
def drain(
    session: Session, queue: str, timeout: str | None, states: Sequence[str], pause_after: bool, as_json: bool
) -> int:
    """Wait until the work in a queue is done: 0 once it is, 1 when the time is up, and says what remains.

    That is, until no task is pending, active, aggregating or to be retried. What is scheduled for later is waited for
    if --state says so; what is archived or completed never. Nothing is stopped: who enqueues goes on enqueuing. A
    paused queue with pending tasks does not become empty, so that is an error, too.
    """
    waited = tuple(state for state in _WORK if state in (states or _WAITED_FOR))
    limit_s = None if timeout is None else _seconds(timeout)
    draining = _Draining(session, queue, waited)
    with Interruption() as interruption:
        try:
            end = draining.wait(interruption, limit_s)
            if end.empty and pause_after:
                end = draining.pause(interruption, limit_s)
        except Interrupted as signal:
            end, code = draining.ended(), EXIT_SIGNAL + signal.signum
        else:
            code = 0 if end.empty else 1
        finally:
            draining.line.clear()
    if as_json:
        emit(end.record())
    if end.empty and not as_json:
        session.screen.say(f"{end}.")
    elif not end.empty:
        say_failure(f"{'interrupted' if code > 1 else 'time is up'}: {end}")
    return code


def _seconds(text: str) -> float:
    try:
        return read_duration(text)
    except ValueError as error:
        raise click.UsageError(f"--timeout: {error}") from None


@dataclass(frozen=True, slots=True)
class _End:
    """Tell how it ended."""

    queue: str
    left: dict[TaskState, int]
    processed: int
    failed: int
    waited_s: float
    paused: bool

    @property
    def empty(self) -> bool:
        return not any(self.left.values())

    def __str__(self) -> str:
        done = f"{number(self.processed)} done in {span(timedelta(seconds=self.waited_s))}"
        failed = f", {number(self.failed)} of them failed attempts" if self.failed else ""
        state = "is empty" if self.empty else f"has {_listed(self.left)} left"
        return f"{clean(self.queue)} {state}{' and paused' if self.paused and self.empty else ''}: {done}{failed}"

    def record(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "empty": self.empty,
            "paused": self.paused,
            "waited_s": round(self.waited_s, 3),
            "processed": self.processed,
            "failed": self.failed,
            "remaining": {state.value: count for state, count in self.left.items()},
        }


def _listed(sizes: dict[TaskState, int]) -> str:
    return ", ".join(f"{number(size)} {state}" for state, size in sizes.items() if size)


class _Draining:
    """Look at a queue again and again."""

    def __init__(self, session: Session, queue: str, waited: Sequence[TaskState]) -> None:
        self.line = StatusLine(session.notes)
        self._session = session
        self._queue = queue
        self._waited = waited
        self._began_s = time.monotonic()
        self._first = self._now = self._look()
        self._seen = [(self._began_s, self._first.processed)]
        if not self.ended().empty and not any(queue in server.queues for server in session.inspector.servers()):
            say_failure(f"note: no server that runs works on {clean(queue)}")

    def _look(self) -> Remaining:
        return self._session.broker.drive(remaining(self._queue, time.time_ns()))

    def ended(self) -> _End:
        """Tell how it would have ended now."""
        return _End(
            self._queue,
            {state: self._now.sizes[state] for state in self._waited},
            self._now.processed - self._first.processed,
            self._now.failed - self._first.failed,
            time.monotonic() - self._began_s,
            self._now.paused,
        )

    def wait(self, interruption: Interruption, limit_s: float | None) -> _End:
        """Wait until nothing is left that is waited for, or the time is up."""
        while not (end := self.ended()).empty:
            if self._now.paused and end.left.get(TaskState.PENDING):
                raise FastqError(
                    f"queue is paused, with {_listed(end.left)} in it (queue={self._queue!r}); "
                    f"fastq queue resume {self._queue} lets servers take them"
                )
            if limit_s is not None and end.waited_s >= limit_s:
                return end
            looked_s = time.monotonic()
            self._now = self._look()
            took_s = time.monotonic() - looked_s
            self.line.show(self._status())
            left_s = limit_s - end.waited_s if limit_s is not None else POLL_S
            if not self.ended().empty:
                interruption.wait(max(min(POLL_S, left_s), took_s / LOOK_SHARE))
        return end

    def pause(self, interruption: Interruption, limit_s: float | None) -> _End:
        """Pause the empty queue; what was taken in between is waited for, what came and was not taken stays."""
        with suppress(QueueStateError):  # somebody else did
            self._session.inspector.pause_queue(self._queue)
        self._waited = (TaskState.ACTIVE,)
        self._now = self._look()
        return self.wait(interruption, limit_s)

    def _status(self) -> str:
        now_s = time.monotonic()
        self._seen = [(at, count) for at, count in self._seen if now_s - at <= RATE_OVER_S] or self._seen[-1:]
        then_s, then = self._seen[0]
        self._seen.append((now_s, self._now.processed))
        rate = (self._now.processed - then) / max(now_s - then_s, 0.001)
        end = self.ended()
        more = f", {number(round(rate))} a second" if rate >= 1 else ""
        return f"{clean(self._queue)}: {_listed(end.left)} left, {number(end.processed)} done{more}"
