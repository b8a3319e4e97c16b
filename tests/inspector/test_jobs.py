"""Jobs on the tasks that match, which are changed while they are walked through."""

from collections import Counter
from collections.abc import Callable

import pytest
from redis import Redis

from fastq import Client, Inspector, Progress, Task, TaskFilter, TaskState
from fastq.inspector.jobs import Place, canceling, doing_where
from fastq.options import EnqueueOptions
from tests.inspector.harness import Seeded
from tests.waiting import PATIENCE_S

PAGES = 450


def types_of(inspector: Inspector, state: TaskState, group: str | None = None) -> list[str]:
    return [info.type for info in inspector.iter_tasks("q", state, group=group)]


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.SCHEDULED, TaskState.AGGREGATING])
def test_exactly_those_that_match_are_changed(url: str, db: Redis, state: TaskState) -> None:
    where = TaskFilter(test=lambda info: info.type != "keep" and b"7" not in info.payload)
    all_options: dict[TaskState, EnqueueOptions] = {
        TaskState.PENDING: {"queue": "q"},
        TaskState.SCHEDULED: {"queue": "q", "process_in": 3_600},
        TaskState.AGGREGATING: {"queue": "q", "group": "g"},
    }
    with Client(url) as client, Inspector(url) as inspector:
        # All of the first page match, so that no task remains by which the walk would know its place.
        types = ["go"] * 230 + ["keep", "go"] * ((PAGES - 230) // 2)
        client.enqueue_many([Task(type, n) for n, type in enumerate(types)], **all_options[state])
        left = [type for n, type in enumerate(types) if type == "keep" or "7" in str(n)]
        job = doing_where("archive", [Place("q", state)], where, 300)
        assert job.question.startswith("Archive the tasks that match, 300 when they were counted, where the newest")
        done = inspector.carry_out(job)
        assert (done.done, done.looked, done.failures) == (PAGES - len(left), PAGES, [])
        assert Counter(types_of(inspector, state, "g" if state is TaskState.AGGREGATING else None)) == Counter(left)
        assert set(types_of(inspector, TaskState.ARCHIVED)) == {"go"}


def test_it_stops_between_two_tasks_and_leaves_later_tasks_alone(url: str) -> None:
    def stopping(most: int) -> Callable[[Progress], None]:
        def note(now: Progress) -> None:
            if now.done == most:
                raise KeyboardInterrupt
            client.enqueue("late", queue="q")

        return note

    with Client(url) as client, Inspector(url) as inspector:
        client.enqueue_many([Task("t", n, queue="q") for n in range(300)])
        of_all = doing_where("delete", [Place("q", TaskState.PENDING)], TaskFilter(), 300)
        assert of_all.question == "Delete all 300 pending tasks of q, for good?"
        job = doing_where("delete", [Place("q", TaskState.PENDING)], TaskFilter(type="t"), 300)
        with pytest.raises(KeyboardInterrupt):
            inspector.carry_out(job, progress=stopping(120))
        assert types_of(inspector, TaskState.PENDING).count("t") == 180
        before = inspector.count_tasks("q", TaskState.PENDING)
        done = inspector.carry_out(job, progress=stopping(-1))
        assert done.done == 180
        assert done.looked <= before + 2  # though tasks were enqueued all the time
        assert set(types_of(inspector, TaskState.PENDING)) == {"late"}


def test_running_tasks_that_match_are_asked_to_stop(url: str, db: Redis) -> None:
    seeded = Seeded(db, "q")
    for n in range(3):
        seeded.activate(f"r{n}", until_s=4_000_000_000, type=f"t{n % 2}")
    with (
        db.pubsub(ignore_subscribe_messages=True) as listener,  # type: ignore[no-untyped-call]  # redis-py
        Inspector(url) as inspector,
    ):
        listener.subscribe("asynq:cancel")
        listener.get_message(timeout=PATIENCE_S)
        done = inspector.carry_out(doing_where("cancel", [Place("q", TaskState.ACTIVE)], TaskFilter(type="t0"), 2))
        assert done.done == 2
        heard = {listener.get_message(timeout=PATIENCE_S)["data"] for _ in range(2)}
        assert heard == {b"r0", b"r2"}
        assert "servers stop and retry them" in canceling(inspector.list_active_tasks("q")).question
