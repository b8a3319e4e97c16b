"""What runs leave behind: results for those who wait, and checkpoints for the next run."""

from collections.abc import Iterator
from typing import Final

from tests.simulation.happenings import Keyed, Saved, Told, Undone, Wrote
from tests.simulation.judge import CHARGED, DONE, History, describe

TOLD_S: Final = 12.0
"""Within so long a handle learns of an end where nothing fails."""


def results(history: History) -> Iterator[str]:
    """A handle is told the end of a run of its own submit, with that run's result, and not before it is written."""
    for told in history.all_of(Told):
        runs = [run for run in history.runs[told.id] if run.ended_s <= told.at_s]
        if told.id in history.rolled_back:
            continue
        if not told.is_written:
            yield f"{told.id} was told as {told.kind} before it was written: {describe(history, told.id)}"
        if told.kind == "done" and told.result not in [run.result for run in runs if run.kind in DONE]:
            yield f"{told.id} was told {told.result!r}, which none of its runs returned: {describe(history, told.id)}"
        # One that may run once has failed, too, if nobody heard of its end.
        is_lost = history.sent[told.id].max_retry == 0 and any(map(history.may_be_unwritten, runs))
        if told.kind == "failed" and runs and not is_lost and all(run.kind in DONE for run in runs):
            yield f"{told.id} was told as failed, and never failed: {describe(history, told.id)}"
        if told.kind == "gone" and not history.is_struck("", 0, told.at_s):
            yield f"{told.id} was told as gone: {describe(history, told.id)}"


def results_in_time(history: History) -> Iterator[str]:
    """A handle learns of an end soon, unless it or the server was struck."""
    for told in history.all_of(Told):
        runs = [run for run in history.runs[told.id] if run.ended_s <= told.at_s and run.kind in (*DONE, *CHARGED)]
        if told.kind == "nothing" and told.id not in history.rolled_back:
            yield f"{told.id} was never told: {describe(history, told.id)}"
        elif runs and told.at_s - runs[-1].ended_s > TOLD_S and history.is_quiet(runs[-1].ended_s, told.at_s):
            yield f"{told.id} was told after {told.at_s - runs[-1].ended_s:.1f} s: {describe(history, told.id)}"


def checkpoints(history: History) -> Iterator[str]:
    """A run begins with the checkpoint that was saved last, or with a later one; and never with another task's.

    A server that stood still may begin, for a moment, what others have run meanwhile. A save that a fail-over has lost
    is none; one that the new master has holds.
    """
    undone = {one.data for one in history.all_of(Undone)}
    keyed = {f"{one.key}#{one.number}" for one in history.all_of(Keyed)}
    all_wrote, all_saved = history.all_of(Wrote), history.all_of(Saved)
    for task_id, runs in history.runs.items():
        wrote = [one for one in all_wrote if one.id == task_id and one.kind == "CHECKPOINT"]
        saved = [one for one in all_saved if one.id == task_id]
        order = [one.data for one in wrote]
        if task_id in keyed and task_id in history.rolled_back:
            continue  # what was to follow it may have followed it twice, each time as another task
        for run in runs:
            confirmed = [order.index(one.data) for one in saved if one.at_s <= run.began_s and one.data not in undone]
            if run.checkpoint and run.checkpoint not in order:
                yield f"{task_id} began with {run.checkpoint!r}, which no run of it wrote: {describe(history, task_id)}"
            elif confirmed and run.owner == run.server and run.checkpoint not in order[max(confirmed) :]:
                known = order[max(confirmed)]
                yield f"{task_id} began with {run.checkpoint!r} after {known!r} was saved: {describe(history, task_id)}"
