"""The same operations through Go asynq and through fastq leave the same in Redis, and fail for the same reasons."""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastq.wire import keys
from tests.interop.differential.aggregating import GroupChooser
from tests.interop.differential.campaign import Campaign, UnequalError, campaign
from tests.interop.differential.generator import Generator, Steps
from tests.interop.differential.intended import Intended, Step
from tests.interop.differential.lanes import run_all
from tests.interop.differential.operation import Operation, Outcome
from tests.interop.differential.schedules import schedule_campaign
from tests.interop.differential.scheduling import OurScheduler, Wish
from tests.interop.differential.table import table_of, used_in
from tests.keyspace import Cells, Difference, Place

pytestmark = pytest.mark.interop

SEED = 20261121
AT_MOST = 2000
"""Sequences; about 400 are needed."""


@pytest.fixture
def run(peer_binary: Path) -> Iterator[Campaign]:
    with campaign(Generator(SEED), peer_binary) as each:
        yield each


def test_every_operation_does_the_same_200_times_and_meets_each_error_20_times(
    peer_binary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = run_all(SEED, peer_binary, AT_MOST)
    with capsys.disabled():
        sys.stdout.write("\n" + table_of(runs))
    assert [goal for run in runs for goal in run.generator.missing()] == []
    assert [entry for entry, count in used_in(runs).items() if not count] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "SADD asynq:queues another",
        "INCR asynq:{default}:processed",
        "SET asynq:left:over 1",
        "LPUSH asynq:{default}:pending id-1000",
        "ZADD asynq:{low}:scheduled 1 id-1000",
        "HSET asynq:{default}:t:id-1000 state pending",
    ],
)
def test_a_wrong_cell_of_fastqs_is_found(run: Campaign, wrong: str) -> None:
    apply = run.fastq.apply
    ours: Any = run.pair.ours

    def apply_wrongly(operations: Sequence[Operation]) -> list[Outcome]:
        outcomes = apply(operations)
        ours.execute_command(*wrong.split())
        return outcomes

    run.fastq.apply = apply_wrongly  # type: ignore[method-assign]  # a side with a defect
    with pytest.raises(UnequalError, match=wrong.split()[1].replace("{", r"\{")):
        run.run_sequence()


ENQUEUED = [
    Operation("enqueue_unique", "enqueue", ("t", b"x"), {"queue": "default", "task_id": "id-1", "unique": 3600}),
    Operation("enqueue_scheduled", "enqueue", ("t", b"y"), {"queue": "default", "task_id": "id-2", "process_in": 3600}),
    Operation("groups", "groups", ("default",)),
]


def enqueued() -> Steps:
    for each in ENQUEUED:
        yield [each]


@pytest.mark.parametrize(
    "wrong",
    [
        "SADD asynq:queues another",
        "EXPIRE asynq:queues 100",
        "HSET asynq:{default}:t:id-1 state active",
        "HINCRBY asynq:{default}:t:id-1 pending_since 1000000000",
        "HDEL asynq:{default}:t:id-1 unique_key",
        "APPEND asynq:{default}:unique:t:9dd4e461268c8034f5c8564e155c67a6 x",
        "EXPIRE asynq:{default}:unique:t:9dd4e461268c8034f5c8564e155c67a6 3700",
        "PERSIST asynq:{default}:unique:t:9dd4e461268c8034f5c8564e155c67a6",
        "LSET asynq:{default}:pending 0 id-9",
        "ZINCRBY asynq:{default}:scheduled 10 id-2",
        "DEL asynq:{default}:scheduled",
    ],
)
def test_what_changes_after_it_was_looked_at_is_found(run: Campaign, wrong: str) -> None:
    apply, ours = run.fastq.apply, run.pair.ours

    def apply_wrongly(operations: Sequence[Operation]) -> list[Outcome]:
        if operations[0].method == "groups":
            ours.execute_command(*wrong.split())
        return apply(operations)

    run.fastq.apply = apply_wrongly  # type: ignore[method-assign]  # a side with a defect
    run.generator.sequence = enqueued  # type: ignore[method-assign]  # nothing else
    with pytest.raises(UnequalError, match=r"step 3 differs:(.|\n)*" + re.escape(wrong.split()[1])):
        run.run_sequence()


def test_a_wrong_error_of_fastqs_is_found(run: Campaign) -> None:
    apply = run.fastq.apply

    def apply_wrongly(operations: Sequence[Operation]) -> list[Outcome]:
        wrong = Outcome(error="TaskNotFoundError")
        return [wrong if outcome.error == "TaskStateError" else outcome for outcome in apply(operations)]

    run.fastq.apply = apply_wrongly  # type: ignore[method-assign]  # a side with a defect
    with pytest.raises(UnequalError, match="Go 'TaskStateError', fastq 'TaskNotFoundError'"):
        run.run_until_all_is_reached(AT_MOST)


def test_a_wrong_cell_after_an_aggregation_is_found(peer_binary: Path) -> None:
    with campaign(GroupChooser(SEED), peer_binary) as run:
        apply, ours = run.fastq.apply, run.pair.ours

        def apply_wrongly(operations: Sequence[Operation]) -> list[Outcome]:
            outcomes = apply(operations)
            if operations[0].method == "tend":
                ours.incr("asynq:{q7}:processed")
            return outcomes

        run.fastq.apply = apply_wrongly  # type: ignore[method-assign]  # a side with a defect
        with pytest.raises(UnequalError, match=r"asynq:\{q7\}:processed"):
            run.run_sequence()


def test_a_wrong_entry_of_our_scheduler_is_found(peer_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.interop.differential.schedules.AGREE_WITHIN_S", 0.1)
    register = OurScheduler.register

    def register_wrongly(self: OurScheduler, wish: Wish) -> str:
        return register(self, replace(wish, options={**wish.options, "max_retry": 7}) if wish.name == "e7" else wish)

    monkeypatch.setattr(OurScheduler, "register", register_wrongly)
    with schedule_campaign(SEED, peer_binary) as run, pytest.raises(AssertionError, match="part='e7'"):
        run.run_sequence()


# An archive that is full, once, since it takes long to look at --------------------------------------------------------

FILL = """
for rank = 1, 10000 do
  local id = string.format('a-%05d', rank)
  redis.call('ZADD', KEYS[1], ARGV[1] + rank, id)
  redis.call('HSET', KEYS[2] .. id, 'msg', ARGV[2], 'state', 'archived')
end
"""


def test_a_full_archive_loses_its_oldest_tasks_where_go_leaves_one_less_and_may_keep_hashes(run: Campaign) -> None:
    def do(name: str, method: str, *args: Any, **options: Any) -> None:
        operation = Operation(name, method, args, options)
        theirs, ours = run.go.apply([operation]), run.fastq.apply([operation])
        assert theirs == ours

    def archived(db: Any) -> tuple[set[bytes], set[bytes]]:
        """Return the ids that the archive has lost, and those of them whose task is still there."""
        lost = {b"a-%05d" % rank for rank in range(1, 10001)} - set(db.zrange(keys.archived("default"), 0, -1))
        return lost, {task_id for task_id in lost if db.exists(keys.task("default", task_id.decode()))}

    def oldest(count: int) -> set[bytes]:
        return {b"a-%05d" % rank for rank in range(1, count + 1)}

    run.go.renew_clients()
    for task_id in ("id-1", "id-2"):
        do("enqueue", "enqueue", "t", b"", queue="default", task_id=task_id)
    for db in (run.pair.theirs, run.pair.ours):
        db.eval(FILL, 2, keys.archived("default"), keys.task_prefix("default"), int(time.time()) - 20000, b"")
    do("begin", "begin", "default", True)
    do("end_skip", "end", ("default", "id-1"), "skip", b"bad")
    assert archived(run.pair.theirs) == (oldest(2), set())
    assert archived(run.pair.ours) == (oldest(1), set())
    do("archive_task", "archive_task", "default", "id-2")
    assert archived(run.pair.theirs) == (oldest(3), {b"a-00003"})
    assert archived(run.pair.ours) == (oldest(2), set())


# What may differ ----------------------------------------------------------------------------------------------------

LOW: Cells = {
    Place("asynq:{low}:t:id-1", "state"): "pending",
    Place("asynq:{low}:unique:t:1", "string"): "id-1",
    Place("asynq:{low}:t:id-2", "state"): "completed",
    Place("asynq:{low}:t:id-3", "state"): "scheduled",
    Place("asynq:{low}:unique:t:3", "string"): "id-3",
    Place("asynq:{low}:unique:t:9", "string"): "id-9",
    Place("asynq:{low}:t:id-4", "state"): "archived",
}
DELETE = Operation("delete_queue_by_force", "delete_queue", ("low",), {"force": True})
DELETE_PENDING = Operation("delete_all_pending_tasks", "delete_all_pending_tasks", ("low",))
ENQUEUE = Operation("enqueue_unique", "enqueue", ("t", b"x"), {"queue": "low", "task_id": "id-1", "unique": 3600})
LOCK = "asynq:{low}:unique:t:9dd4e461268c8034f5c8564e155c67a6"
TRIM = Operation("archive_task_trimming", "archive_task", ("low", "id-1"))
RUN = Operation("run_task", "run_task", ("low", "id-3"))
RUN_ARCHIVED = Operation("run_all_archived_tasks", "run_all_archived_tasks", ("low",))


@pytest.mark.parametrize(
    ("operation", "outcome", "place", "is_meant"),
    [
        (DELETE, "None", "asynq:{low}:completed score of id-2", True),
        (DELETE, "None", "asynq:{low}:processed:<day> string", True),
        (DELETE, "None", "asynq:{low}:t:id-2 msg", True),
        (DELETE, "None", "asynq:{low}:unique:t:1 ttl", True),
        (DELETE, "None", "asynq:{low}:unique:t:9 ttl", False),  # of a task that is not there
        (DELETE, "None", "asynq:{low}:t:id-1 msg", False),  # Go deletes what is pending, too
        (DELETE, "None", "asynq:{low}:pending elements", False),
        (DELETE, "None", "asynq:{default}:completed score of id-2", False),
        (DELETE, "QueueNotEmptyError", "asynq:{low}:completed score of id-2", False),
        (DELETE_PENDING, "1", "asynq:{low}:unique:t:1 string", True),
        (DELETE_PENDING, "1", "asynq:{low}:unique:t:3 string", False),  # of one that is scheduled
        (ENQUEUE, "TaskIDConflictError", f"{LOCK} ttl", True),
        (ENQUEUE, "TaskIDConflictError", "asynq:{low}:unique:t:1 ttl", False),  # not the lock asked for
        (ENQUEUE, "pending", f"{LOCK} ttl", False),
        (TRIM, "None", "asynq:{low}:t:id-2 msg", False),  # not archived
        (RUN_ARCHIVED, "1", "asynq:{low}:t:id-4 result", True),
        (RUN_ARCHIVED, "1", "asynq:{low}:t:id-4 msg", False),
        (RUN_ARCHIVED, "1", "asynq:{low}:t:id-1 result", False),  # not archived
        (RUN, "None", "asynq:{low}:t:id-1 pending_since", False),  # not the task
        (RUN, "None", "asynq:{low}:t:id-3 pending_since", False),  # here it is Go that has one
    ],
)
def test_what_may_differ_is_as_narrow_as_its_reason(
    operation: Operation, outcome: str, place: str, is_meant: bool
) -> None:
    """Everywhere Go has something, and fastq nothing."""
    key, _, part = place.partition(" ")
    left = Intended().unexplained(Step(operation, outcome, LOW), {Place(key, part): Difference("something", None)})
    assert (not left) is is_meant
