"""The crowd's inspectors, Go's and fastq's in turn: they act on known tasks, pause queues, and look at everything."""

import queue
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fastq import Inspector, TaskState
from tests.interop.crowd.books import TaskKey, fastq_begun, go_runs
from tests.interop.crowd.plan import CANCELED, QUEUES, SHELF, Job
from tests.interop.crowd.producers import Enqueued
from tests.interop.peer import GoPeer

STATES: Final = [state for state in TaskState if state is not TaskState.AGGREGATING]
Act = Callable[[str, str, bytes], object]


class Actors:
    """Do a job's acts one after the other, each by either inspector, as jobs come from the producers."""

    def __init__(self, go: GoPeer, inspector: Inspector, seed: int) -> None:
        self.acts: dict[str, tuple[Act, Act]] = {
            "run": both(go, "RunTask", inspector.run_task),
            "archive": both(go, "ArchiveTask", inspector.archive_task),
            "delete": both(go, "DeleteTask", inspector.delete_task),
            "update": (
                lambda queue, task_id, payload: go.inspect("UpdateTaskPayload", queue, task_id, payload),
                inspector.update_task_payload,
            ),
        }
        self.chance = random.Random(seed)
        self.jobs: queue.SimpleQueue[Enqueued | None] = queue.SimpleQueue()
        self.done = 0

    def hear(self, enqueued: Enqueued) -> None:
        """Take a job with acts."""
        if enqueued.job.acts and enqueued.task_id:
            self.jobs.put(enqueued)

    def end(self) -> None:
        """Note that there are no more."""
        self.jobs.put(None)

    def work(self) -> None:
        """Act until the end is said."""
        while (enqueued := self.jobs.get()) is not None:
            job: Job = enqueued.job
            for act in job.acts:
                self.chance.choice(self.acts[act])(job.queue, enqueued.task_id, job.new_payload())
                self.done += 1


def both(go: GoPeer, name: str, ours: Callable[[str, str], object]) -> tuple[Act, Act]:
    return lambda queue, task_id, _: go.inspect(name, queue, task_id), lambda queue, task_id, _: ours(queue, task_id)


def look_around(go: GoPeer, inspector: Inspector) -> None:
    """Read all that can be read; what is wrong raises."""
    for name in (*QUEUES, SHELF):
        if name not in inspector.queues():
            continue
        for info in (vars_of(inspector.get_queue_info(name)), go.inspect("GetQueueInfo", name)):
            assert info["size"] == sum(info[state.value] for state in TaskState), info
        for state in STATES:
            inspector.list_tasks(name, state, page_size=50)
            go.inspect(f"List{state.title()}Tasks", name, {"page": 1, "size": 50})
        for group in inspector.groups(name):
            inspector.list_aggregating_tasks(name, group.group)
            go.inspect("ListAggregatingTasks", name, group.group, {"page": 1, "size": 50})
        inspector.history(name, 2)
        go.inspect("History", name, 2)
    inspector.servers()
    go.inspect("Servers")
    inspector.scheduler_entries()
    go.inspect("SchedulerEntries")


def vars_of(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def pause_and_resume(go: GoPeer, inspector: Inspector, turn: int) -> None:
    """Let one inspector pause a queue, see that the other knows, and let that one end it."""
    name = list(QUEUES)[turn % len(QUEUES)]
    if name not in inspector.queues():
        return
    if turn % 2:
        inspector.pause_queue(name)
        assert go.inspect("GetQueueInfo", name)["paused"]
        go.inspect("UnpauseQueue", name)
        assert not inspector.get_queue_info(name).paused
    else:
        go.inspect("PauseQueue", name)
        assert inspector.get_queue_info(name).paused
        inspector.unpause_queue(name)
        assert not go.inspect("GetQueueInfo", name)["paused"]


def cancel_waiting(serving: GoPeer, go: GoPeer, inspector: Inspector, directory: Path, told: set[TaskKey]) -> None:
    """Cancel once each task that has begun to wait in vain, by either inspector."""
    begun = {run.key for run in go_runs(serving, CANCELED)} | fastq_begun(directory, CANCELED)
    for key in sorted(begun - told):
        told.add(key)
        if len(told) % 2:
            inspector.cancel_processing(key[1])
        else:
            go.inspect("CancelProcessing", key[1])


@contextmanager
def at_it(*works: Callable[[int], object], pause_s: float = 0.05) -> Iterator[None]:
    """Do each work again and again in a thread of its own, with the number of the turn; what one raises is raised."""
    over = threading.Event()

    def again(work: Callable[[int], object]) -> None:
        turn = 0
        while not over.wait(pause_s):
            work(turn)
            turn += 1

    with ThreadPoolExecutor(len(works)) as pool:
        threads = [pool.submit(again, work) for work in works]
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.result()
