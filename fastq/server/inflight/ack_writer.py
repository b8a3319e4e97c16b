"""The writes of ends, for the acker and the syncer: a reply settles an end, a failed write leaves it uncertain."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from fastq.broker.operations.finish import FinishOutcome
from fastq.errors import BrokerConnectionError, BrokerError
from fastq.server.base.commands import Commands
from fastq.server.inflight.ack_planner import AckCall, plan_acks
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.inboxes import Inboxes
from fastq.server.inflight.marked import behind_ends, tell_refusals
from fastq.server.inflight.owner_marks import restore_marks
from fastq.server.inflight.progress_writer import ProgressWriter
from fastq.server.inflight.stats import RoundTrip
from fastq.server.inflight.task_log import LEASE_LOST, TaskLog
from fastq.server.inflight.tasks import InFlightTask, awaited, count_ends, live

_log = logging.getLogger("fastq.acker")


class AckWriter:
    """The writer of ends; it keeps an end as uncertain if its write fails."""

    def __init__(self, commands: Commands, in_flight: InFlight, task_log: TaskLog) -> None:
        self._commands = commands
        self._in_flight = in_flight
        self.inboxes = Inboxes(commands)
        self.progress = ProgressWriter(commands, in_flight.owner)
        self.node_name_of = commands.node_name_of
        self._tasks = in_flight.tasks
        self._ends = in_flight.ends
        self._owner = in_flight.owner
        self._clock = in_flight.clock
        self._stats = in_flight.stats
        self._task_log = task_log
        self._failing: dict[str, BrokerError] = {}
        self._failing_since_s: float | None = None
        self._is_told = False
        self._under_way: list[list[InFlightTask]] = []

    def tasks(self) -> set[object]:
        """Return the tasks whose ends are being written, or must be written again."""
        return {task for tasks in (self._ends.waiting, *self._under_way) for task in tasks}

    async def write(self, tasks: list[InFlightTask], *, checks_done: bool) -> None:
        """Write the ends of tasks in one round trip; the syncer repeats writes that fail.

        With ``checks_done``, the ends of done tasks, too, are written only while their leases are ours. The end of a
        task that this server has given up is not written, because another server decides that task's end.
        """
        ours = live(tasks)
        self._under_way.append(ours)
        began_s = self._clock.monotonic_s()
        try:
            now_ns, lanes = self._clock.unix_ns(), self._commands.lanes
            calls = plan_acks(ours, self._tasks, self._owner, now_ns, checks_done=checks_done, lanes=lanes)
            before = self.progress.with_ends_of(ours) if self.progress.unwritten else []
            behind = self.inboxes.with_completed(calls) if awaited(ours) else []
            last = behind_ends(ours, self._clock.unix_ns()) if self._tasks.marked_queues else []
            results = await self._commands.run_many([*before, *[call.operation for call in calls], *behind, *last])
        except asyncio.CancelledError:
            self._ends.keep(ours, BrokerConnectionError("the write was canceled", maybe_applied=True))
            raise
        except Exception as error:
            # A defect. Without this, the tasks would stay in flight forever.
            self._ends.keep(ours, BrokerError(f"internal error: {error!r}", maybe_applied=True))
            raise
        finally:
            self._under_way.remove(ours)
        self._stats.round_trips_s[RoundTrip.ACK].observe(self._clock.monotonic_s() - began_s)
        self._stats.acked.observe(len(ours))
        not_ours = self._take(calls, results[len(before) : len(before) + len(calls)])
        if behind:
            self.inboxes.note(results[len(before) + len(calls) : len(results) - len(last)])
        if last:
            tell_refusals(results[-len(last) :])
        if not_ours:
            await self._restore_and_write(not_ours)

    async def _restore_and_write(self, tasks: list[InFlightTask]) -> None:
        """Write the ends of tasks whose leases have lost no more than our mark, and let go of the others."""
        self._under_way.append(tasks)
        try:
            ours = await restore_marks(self._commands.run_many, self._in_flight, tasks)
        except BaseException as error:
            self._ends.add(tasks)
            if isinstance(error, BrokerError):
                return
            raise
        finally:
            self._under_way.remove(tasks)
        self._lose([task for task in tasks if task not in ours], FinishOutcome.NOT_OURS)
        if ours:
            await self.write([task for task in tasks if task in ours], checks_done=True)

    def _take(self, calls: Sequence[AckCall], outcomes: Sequence[Any]) -> list[InFlightTask]:
        """Settle ends that were written, keep the others as uncertain; return the tasks that seem not to be ours."""
        not_ours: list[InFlightTask] = []
        for call, outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                self._note_failure(call.tasks, outcome)
                self._ends.keep(call.tasks, outcome)
            else:
                if self._failing:
                    self._failing.pop(call.tasks[0].queue, None)
                if outcome.count(FinishOutcome.OK) == len(outcome):
                    self._settle(call.tasks, call.tasks, len(call.tasks))
                else:
                    not_ours += self._settle_some(call.tasks, outcome)
        if self._failing_since_s is not None and not self._ends:
            self._note_end()
        return not_ours

    def failing(self) -> dict[str, BrokerError]:
        """Return the error of each queue whose outcomes cannot be saved just now."""
        return self._failing if self._ends else {}

    def _note_failure(self, tasks: Sequence[InFlightTask], error: BrokerError) -> None:
        outage = self._stats.outage
        outage.notice(error)
        self._failing[tasks[0].queue] = error
        if self._failing_since_s is None:
            self._failing_since_s = self._clock.monotonic_s()
        if not self._is_told and outage.may_tell(self._failing_since_s):
            self._is_told = True
            _log.warning("cannot save the outcomes of %d tasks yet: %s; retrying", len(tasks), error)

    def _note_end(self) -> None:
        if self._is_told:
            _log.info("all outcomes that waited for Redis are saved")
        else:
            self._stats.outage.leave_untold()
        self._failing.clear()
        self._failing_since_s, self._is_told = None, False

    def _settle(self, saved: list[InFlightTask], written: list[InFlightTask], size: int) -> None:
        """Let go of tasks whose ends are saved; the last write of ``size`` ends has written some of them."""
        if told := awaited(written):
            self.inboxes.tell(told, size)
        count_ends(saved)
        self._tasks.drop_all(saved)
        self._ends.settle(saved)
        if self._task_log.is_open:
            self._task_log.add(saved)

    def _settle_some(self, tasks: list[InFlightTask], outcomes: Sequence[FinishOutcome]) -> list[InFlightTask]:
        """Let go of tasks whose ends are saved, and of those that are gone; return those that seem not to be ours."""
        sorted_out: dict[FinishOutcome, list[InFlightTask]] = {outcome: [] for outcome in FinishOutcome}
        for task, outcome in zip(tasks, outcomes, strict=True):
            # If an end in doubt finds its task gone, our earlier write, whose reply was lost, has written that end.
            sorted_out[FinishOutcome.OK if self._ends.is_in_doubt(task) else outcome].append(task)
        written = [task for task, outcome in zip(tasks, outcomes, strict=True) if outcome is FinishOutcome.OK]
        self._settle(sorted_out[FinishOutcome.OK], written, len(tasks))
        self._lose(sorted_out[FinishOutcome.NOT_ACTIVE], FinishOutcome.NOT_ACTIVE)
        return sorted_out[FinishOutcome.NOT_OURS]

    def _lose(self, tasks: list[InFlightTask], why: FinishOutcome) -> None:
        """Let go of tasks whose ends can never be saved."""
        for task in live(tasks):
            self._stats.leases_lost += 1
            self._task_log.add([task], LEASE_LOST)
            _log.warning(
                "task %s of queue %s lost its lease before its outcome was saved (%s); it may run again",
                task.id,
                task.queue,
                why.name.lower(),
            )
        self._tasks.drop_all(tasks)
        self._ends.settle(tasks)
