"""The engine: in each turn it enqueues the due tasks and publishes the entries. It does not sleep itself.

Each round trip enqueues the next due tick of up to 100 entries, so the ticks of an entry stay in order. An error, or a
missing reply, concerns only its entry. An entry that failed is tried again with growing pauses. Its policy for missed
ticks then decides which ticks are enqueued.
"""

import logging
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastq.broker.operation import Operation
from fastq.broker.operations.enqueue import EnqueueOutcome, Outcome, QueueRegister, error_of
from fastq.broker.operations.schedulers import TickOutcome, clear_scheduler, publish_scheduler, record_event
from fastq.broker.operations.ticks import enqueue_ticks, read_last_tick
from fastq.broker.transport.blocking import BlockingBroker
from fastq.common.clock import Clock, at_unix_ns
from fastq.errors import BrokerError, DuplicateTaskError, TaskIDConflictError
from fastq.scheduler.composing import TickTask, compose_tick
from fastq.scheduler.entry import Entry
from fastq.scheduler.hooks import EnqueueHooks
from fastq.scheduler.tick_counts import TickCounts
from fastq.task import Task
from fastq.wire.messages import SchedulerEnqueueEvent
from fastq.wire.records import encode_scheduler_enqueue_event, encode_scheduler_entry

LONGEST_WAIT_S: Final = 1.0
"""The longest time between two turns, so that a changed clock or a suspended machine is noticed within it."""
LONGEST_BACKOFF_S: Final = 5.0
MOST_AT_ONCE: Final = 100
MOST_TOLD: Final = 20
BEAT_AFTER_TICK_S: Final = 1.0
"""After a tick the entries are published again, but not sooner than this after the last heartbeat."""

_log = logging.getLogger("fastq.scheduler")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The scheduler's id, its heartbeat interval, and its hooks."""

    scheduler_id: str
    heartbeat_s: float
    hooks: EnqueueHooks

    @property
    def ttl_s(self) -> int:
        """Return the lifetime of the published entries: two heartbeats, in whole seconds, since Redis accepts no
        fractions.
        """
        return max(1, -int(-2 * self.heartbeat_s // 1))


class Engine:
    """The entries; one thread calls ``turn``, any thread the other methods."""

    def __init__(self, broker: BlockingBroker, options: EngineOptions, clock: Clock) -> None:
        self._broker = broker
        self._options = options
        self._clock = clock
        self._register = QueueRegister(clock)
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._names: set[str] = set()
        self._beat_at_s = 0.0
        self._beaten_s = 0.0
        self._said: set[type[BrokerError]] = set()
        self._with_history: set[str] = set()
        self._counts = TickCounts()

    def now(self) -> datetime:
        """Return the time of the clock."""
        return at_unix_ns(self._clock.unix_ns())

    def add(self, entry: Entry) -> None:
        """Add an entry; ``ValueError`` if another entry has its name."""
        name = entry.registration.name
        with self._lock:
            if name in self._names:
                raise ValueError(f"name {name!r} is already taken by another entry")
            if name is not None:
                self._names.add(name)
            self._entries[entry.id] = entry
            self._beat_at_s = 0.0

    def remove(self, entry_id: str) -> bool:
        """Remove an entry; False if there is no such entry."""
        with self._lock:
            entry = self._entries.pop(entry_id, None)
            if entry is None:
                return False
            self._names.discard(entry.registration.name or "")
            self._beat_at_s = 0.0
            return True

    def begin(self) -> None:
        """Skip ticks that were due between the registration of the entries and now; call this before the first turn."""
        now = self.now()
        entries = self._followed()
        for entry in entries:
            entry.begin(now)
        for entry in entries[:MOST_TOLD]:
            _log.info("%s: next %s", entry, _shown(entry.next))
        if len(entries) > MOST_TOLD:
            _log.info("%d more entries", len(entries) - MOST_TOLD)

    def turn(self) -> float:
        """Enqueue the due tasks, send the heartbeat if it is time; return the seconds until the next work."""
        entries, now = self._followed(), self.now()
        self._recall([entry for entry in entries if entry.must_recall(now) and self._may_try(entry)])
        picked = self._pick(entries)
        while picked:
            tasks = [task for entry, ticks in picked if (task := self._compose(entry, ticks.pop(0)))]
            for at in range(0, len(tasks), MOST_AT_ONCE):
                self._enqueue(tasks[at : at + MOST_AT_ONCE])
            picked = [(entry, ticks) for entry, ticks in picked if ticks and not entry.failures]
            # The published entries, mainly their next times, are now outdated.
            self._beat_at_s = min(self._beat_at_s, self._beaten_s + BEAT_AFTER_TICK_S)
        self._counts.write(self._broker, self._clock.monotonic_s())
        if self._clock.monotonic_s() >= self._beat_at_s:
            self._beat()
        return self._pause_s()

    def clear(self) -> None:
        """Remove the published entries. If Redis does not answer, they expire by themselves, except histories."""
        failed = self._run(clear_scheduler(self._options.scheduler_id, sorted(self._with_history)))
        if failed is not None:
            _log.warning(
                "could not remove the entries from Redis; they stay listed for %d s: %s", self._options.ttl_s, failed
            )

    def _followed(self) -> list[Entry]:
        with self._lock:
            return list(self._entries.values())

    def _may_try(self, entry: Entry) -> bool:
        return self._clock.monotonic_s() >= entry.retry_at_s

    def _recall(self, entries: Sequence[Entry]) -> None:
        """Read the last tick of entries that make up for missed ticks. So a scheduler that was suspended or cut off
        does not repeat ticks that others have enqueued, and whose keys have expired since.
        """
        operations = [read_last_tick(entry.registration.queue, entry.registration.name or "") for entry in entries]
        results = self._broker.run_many(operations) if operations else []
        for entry, last in zip(entries, results, strict=True):
            if isinstance(last, BrokerError):
                self._postpone(entry, last)
            else:
                entry.recall(last)
                self._note_success()

    def _pick(self, entries: Sequence[Entry]) -> list[tuple[Entry, list[datetime]]]:
        now = self.now()
        picked = []
        for entry in entries:
            pick = entry.pick(now) if entry.recalled else None
            if pick is None:
                continue
            if not pick.ticks:
                self._note_what_is_left_out(entry, pick.latest)
                entry.leave_behind(pick.latest)
            elif self._may_try(entry):
                picked.append((entry, [*pick.ticks]))
        return picked

    def _compose(self, entry: Entry, due: datetime) -> TickTask | None:
        registration, attempt = entry.registration, entry.attempt(due)
        made: Task | Exception = attempt.task
        if not attempt.announced:
            attempt.announced = True
            made = self._options.hooks.before(registration.task, registration.options)
        if isinstance(made, Task):
            attempt.task = made
            try:
                return compose_tick(entry, due, self._clock.unix_ns())
            except ValueError as refused:
                made = refused
        self._refuse(entry, due, made)
        return None

    def _enqueue(self, tasks: Sequence[TickTask]) -> None:
        named = [(task.named, task) for task in tasks if task.named is not None]
        plain = [task for task in tasks if task.named is None]
        queues = self._register.due({task.batch.queue for task in tasks})
        report = self._broker.drive(
            enqueue_ticks([(tick, task.batch) for tick, task in named], [task.batch for task in plain], queues)
        )
        outcomes = list(zip([*(task for _, task in named), *plain], [*report.named, *report.plain], strict=True))
        failed = {task.batch.queue for task, outcome in outcomes if isinstance(outcome, BrokerError)}
        self._register.done(set(queues) - failed, report.registered)
        enqueued = [task for task, outcome in outcomes if self._settle(task, outcome)]
        if enqueued:
            self._record(enqueued)

    def _settle(self, task: TickTask, outcome: Outcome) -> bool:
        """Record the result of a tick's task; return whether it was enqueued here. ``TAKEN`` calls no hook."""
        entry, attempt, info = task.entry, task.attempt, task.info
        if isinstance(outcome, BrokerError):
            self._fail(task, outcome)
            return False
        if outcome is EnqueueOutcome.TAKEN:
            _log.debug("%s: another scheduler enqueued the task of %s", entry, attempt.due)
            entry.leave_uncounted()
            self._leave(entry, attempt.due)
            return False
        error = error_of(outcome, info.queue, info.id)
        if isinstance(error, TaskIDConflictError) and attempt.maybe_applied and attempt.is_id_ours:
            error = None  # an earlier try, whose reply was lost, has enqueued it
        if error is not None:
            self._refuse(entry, attempt.due, error)
            return False
        self._leave(entry, attempt.due)
        self._counts.note(TickOutcome.ENQUEUED, entry.registration.task.type)
        _log.info("%s: enqueued task %s in queue %s; next %s", entry, info.id, info.queue, _shown(entry.next))
        self._options.hooks.after(info, None)
        return True

    def _fail(self, task: TickTask, error: BrokerError) -> None:
        """Make an entry try again later; the hook is called only once per tick."""
        attempt = task.attempt
        attempt.maybe_applied = attempt.maybe_applied or error.maybe_applied
        attempt.failing_since = attempt.failing_since or self.now()
        self._postpone(task.entry, error)
        if not attempt.reported:
            attempt.reported = True
            self._options.hooks.after(None, error)

    def _refuse(self, entry: Entry, due: datetime, error: Exception) -> None:
        _log.info("%s: the task of %s was not enqueued: %s", entry, due, error)
        self._leave(entry, due)
        is_taken = isinstance(error, (DuplicateTaskError, TaskIDConflictError))
        self._counts.note(TickOutcome.DUPLICATE if is_taken else TickOutcome.FAILED, entry.registration.task.type)
        error.add_note(f"scheduler {entry!r}")
        self._options.hooks.after(None, error)

    def _leave(self, entry: Entry, due: datetime) -> None:
        self._note_what_is_left_out(entry, due)
        entry.settle(due)
        self._note_success()

    def _note_what_is_left_out(self, entry: Entry, latest: datetime) -> None:
        if left_out := entry.count_left_out():
            missed = entry.registration.missed
            self._counts.note(TickOutcome.MISSED, entry.registration.task.type, left_out)
            if not entry.is_behind:
                text = "%s: ticks up to %s were missed, and some of them are skipped (missed=%s)"
                _log.warning(text, entry, latest, missed)
        entry.is_behind = left_out > 0

    def _record(self, tasks: Sequence[TickTask]) -> None:
        now_ns = self._clock.unix_ns()
        operations: list[Operation[int]] = []
        for task in tasks:
            self._with_history.add(task.entry.id)
            event = encode_scheduler_enqueue_event(SchedulerEnqueueEvent(task.info.id, at_unix_ns(now_ns)))
            operations += record_event(task.entry.id, event, now_ns // 1_000_000_000)
        failed = self._run(operations)
        if failed is not None:
            _log.warning("enqueued tasks could not be recorded in the history of their entries: %s", failed)

    def _beat(self) -> None:
        heartbeat_s, now = self._options.heartbeat_s, self.now()
        began_s = self._clock.monotonic_s()
        with self._lock:  # done first: entries added or removed later cause another heartbeat
            self._beat_at_s, self._beaten_s = began_s + heartbeat_s, began_s
            entries = sorted(self._entries.values(), key=lambda entry: (entry.next is None, entry.next or now))
        encoded = [encode_scheduler_entry(entry.message()) for entry in entries]
        failed = self._run(
            publish_scheduler(self._options.scheduler_id, encoded, int(now.timestamp()), self._options.ttl_s)
        )
        if failed is None:
            self._note_success()
            return
        self._say(failed)
        with self._lock:
            self._beat_at_s = min(self._beat_at_s, began_s + min(heartbeat_s, LONGEST_BACKOFF_S))

    def _run(self, operations: Sequence[Operation[int]]) -> BrokerError | None:
        results = self._broker.run_many(operations)
        return next((result for result in results if isinstance(result, BrokerError)), None)

    def _postpone(self, entry: Entry, error: BrokerError) -> None:
        self._say(error)
        entry.failures += 1
        longest_s = min(LONGEST_BACKOFF_S, 0.1 * 2 ** min(entry.failures, 16))
        entry.retry_at_s = self._clock.monotonic_s() + longest_s * random.uniform(0.5, 1.0)

    def _say(self, error: BrokerError) -> None:
        if type(error) not in self._said:
            self._said.add(type(error))
            _log.warning("%s; trying again until it works", error)

    def _note_success(self) -> None:
        if self._said and not any(entry.failures for entry in self._followed()):
            self._said.clear()
            _log.info("Redis operations succeed again")

    def _pause_s(self) -> float:
        now_s, now = self._clock.monotonic_s(), self.now()
        waits = [LONGEST_WAIT_S, self._beat_at_s - now_s]
        for entry in self._followed():
            wait_s = entry.retry_at_s - now_s if entry.failures else 0.0
            if entry.next is not None and not (entry.failures and entry.must_recall(now)):
                # An entry that failed must wait for its tick, too, since the clock may have been set back meanwhile.
                wait_s = max(wait_s, (entry.next - now).total_seconds())
            elif not entry.failures:
                continue
            waits.append(wait_s)
        return max(0.0, min(waits))


def _shown(moment: datetime | None) -> str:
    return "never" if moment is None else f"at {moment:%Y-%m-%d %H:%M:%S} UTC"
