"""aggregate_groups: one task for each group, now; and a group is as it was if that fails."""

from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from fastq import Client, DuplicateTaskError, ServeMux, Task, TaskIDConflictError
from fastq.broker.operations.aggregate import MAX_SET
from fastq.running import GroupedTask, RunningTask
from fastq.testing import aggregate_groups, drain
from fastq.wire import keys
from tests.broker.harness import QUEUE, QueueBench
from tests.server.actors.groups import leftovers


def together(group: str, tasks: Sequence[GroupedTask]) -> Task:
    return Task("whole", [group, *(task.payload.decode() for task in tasks)], task_id=group)


@pytest.fixture
def bench(url: str, db: Redis) -> QueueBench:
    with Client(url) as client:
        for number, group in enumerate(["g", "g", "h"]):
            client.enqueue("t", str(number).encode(), group=group, task_id=str(number), unique=60)
        client.enqueue("t", b"x", group="g", queue="other")
    return QueueBench(db)


def test_each_group_becomes_a_task_that_drain_runs(bench: QueueBench, url: str) -> None:
    mux: ServeMux = ServeMux()

    @mux.handler("whole")
    def whole(task: RunningTask) -> Any:
        return task.json()

    assert aggregate_groups(together, url) == ["g", "h", "g"]
    assert leftovers(bench) == {}
    assert not bench.db.keys("asynq:{default}:unique:*")
    assert sorted(run.json() for run in drain(mux, url)) == [["g", "0", "1"], ["g", "x"], ["h", "2"]]
    assert aggregate_groups(together, url) == []


def test_only_the_named_queues_are_looked_at(bench: QueueBench, db: Redis) -> None:
    assert aggregate_groups(together, db, queues=["other"]) == ["g"]
    assert leftovers(bench)["listed"] == {"g", "h"}


def test_a_large_group_is_taken_in_sets(url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue_many(Task("t", group="g") for _ in range(MAX_SET + 1))
    ids = aggregate_groups(lambda group, tasks: Task("whole", len(tasks)), url)
    bench = QueueBench(db)
    assert [bench.message(task_id).payload for task_id in ids] == [b"5000", b"1"]
    assert leftovers(bench) == {}


def test_a_task_for_its_own_group_waits_there(bench: QueueBench, url: str) -> None:
    aggregate_groups(lambda group, tasks: Task("part", group=group, task_id=f"new-{group}"), url, queues=[QUEUE])
    assert set(bench.scores("g:g")) == {"new-g"}


@pytest.mark.parametrize(
    ("returned", "kind"),
    [
        (LookupError("no"), LookupError),
        (None, TypeError),
        (Task("whole", key="k"), ValueError),
        (Task("whole", lane="l"), ValueError),
        (Task("whole", task_id="taken"), TaskIDConflictError),
        (Task("taken", unique=60), DuplicateTaskError),
    ],
)
def test_what_goes_wrong_is_raised_and_the_tasks_are_in_their_group_again(
    returned: Any, kind: type[Exception], bench: QueueBench, url: str
) -> None:
    def bad(group: str, tasks: Sequence[GroupedTask]) -> Any:
        if isinstance(returned, Exception):
            raise returned
        return returned

    bench.pend("taken")
    bench.db.set(keys.unique(QUEUE, "taken", None), "somebody else")
    before = leftovers(bench)
    with pytest.raises(kind):
        aggregate_groups(bad, url)
    assert leftovers(bench) == before
