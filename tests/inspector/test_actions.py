"""What the inspectors do to one task: state in, state out."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from redis import Redis

from fastq import QueueNotFoundError, TaskNotFoundError, TaskState, TaskStateError
from fastq.broker.operation import Flow
from fastq.broker.transport.open import open_broker
from fastq.inspector import actions
from fastq.wire import keys
from tests.broker.harness import NOW_S
from tests.cli.keyspaces import everything
from tests.inspector.harness import Ask, Seeded

ACTIONS = {"delete": "delete_task", "archive": "archive_task", "run": "run_task"}
PLACES = ("scheduled", "retry", "archived", "completed")
LOCK = keys.unique("default", "t", b"")


def put_into(queue: Seeded, state: str, task_id: str = "it", **fields: Any) -> None:
    """Let a task be in a state, between two others."""
    if state == "pending":
        queue.pend("before", task_id, "after", **fields)
    elif state == "active":
        queue.activate("before", task_id, "after", **fields)
    elif state == "aggregating":
        queue.group("g", {"before": 1, task_id: 2, "after": 3}, **fields)
    else:
        queue.add(state, {"before": NOW_S, task_id: NOW_S + 1, "after": NOW_S + 2}, **fields)


def others(queue: Seeded, state: str) -> dict[str, list[str]]:
    """Return where the two others are, and are to stay."""
    if state == "aggregating":
        assert queue.db.zrange(queue.key("g:g"), 0, -1) == [b"before", b"after"]
        return {}
    return {state: ["after", "before"] if state in ("pending", "active") else ["before", "after"]}


@pytest.mark.parametrize("state", ["pending", *PLACES, "aggregating"])
def test_a_deleted_task_is_gone_with_its_lock_and_the_others_stay(ask: Ask, queue: Seeded, state: str) -> None:
    put_into(queue, state)
    queue.db.hset(keys.task("default", "it"), "unique_key", LOCK)
    queue.db.set(LOCK, "it")
    ask("delete_task", "default", "it")
    assert queue.places() == others(queue, state)
    assert sorted(queue.states()) == ["after", "before"]
    assert not queue.db.exists(LOCK)


@pytest.mark.parametrize("state", ["pending", "scheduled", "retry", "completed", "aggregating"])
def test_an_archived_task_is_in_the_archive_as_it_was(ask: Ask, queue: Seeded, state: str) -> None:
    put_into(queue, state)
    before = queue.task("it")
    since = int(time.time())
    ask("archive_task", "default", "it")
    assert queue.places() == {**others(queue, state), "archived": ["it"]}
    assert since <= queue.scores("archived")["it"] <= time.time()
    assert queue.task("it") == {**before, "state": b"archived"}
    assert queue.counters() == {}


@pytest.mark.parametrize("state", [*PLACES, "aggregating"])
def test_a_task_that_is_run_is_the_last_of_pending_and_waits_from_now_on(ask: Ask, queue: Seeded, state: str) -> None:
    put_into(queue, state)
    queue.pend("first", "second")
    queue.db.hset(keys.task("default", "it"), "pending_since", "1")
    before, since_ns = queue.task("it"), time.time_ns()
    ask("run_task", "default", "it")
    assert queue.places() == {**others(queue, state), "pending": ["it", "second", "first"]}
    after = queue.task("it")
    assert since_ns <= int(after["pending_since"]) <= time.time_ns()
    assert after == {**before, "state": b"pending", "pending_since": after["pending_since"]}


@pytest.mark.parametrize(
    ("action", "state"),
    [("delete", "active"), ("archive", "active"), ("archive", "archived"), ("run", "active"), ("run", "pending")],
)
def test_a_task_in_a_state_in_which_it_makes_no_sense_is_left_alone(
    ask: Ask, queue: Seeded, action: str, state: str
) -> None:
    put_into(queue, state)
    before = queue.places(), queue.task("it")
    with pytest.raises(TaskStateError, match=rf"cannot {action} a task in state '{state}'.*task_id='it'") as error:
        ask(ACTIONS[action], "default", "it")
    assert (error.value.queue, error.value.task_id, error.value.state) == ("default", "it", state)
    assert (queue.places(), queue.task("it")) == before


@pytest.mark.parametrize("method", ACTIONS.values())
def test_a_task_that_is_being_aggregated_is_left_alone(ask: Ask, queue: Seeded, method: str) -> None:
    queue.put("it", "aggregating", group_key="g")
    queue.db.hset(keys.task("default", "it"), "group", "g")
    staged = keys.aggregation_set("default", "g", "s")
    queue.db.zadd(staged, {"it": 1})
    queue.db.zadd(keys.aggregation_sets("default"), {staged: NOW_S})
    with pytest.raises(TaskStateError, match="'aggregation'"):
        ask(method, "default", "it")
    assert queue.states() == {"it": "aggregating"}
    assert queue.db.zcard(staged) == 1


@pytest.mark.parametrize("method", ACTIONS.values())
def test_a_task_or_queue_that_is_not_there_is_not_found(ask: Ask, queue: Seeded, method: str) -> None:
    with pytest.raises(TaskNotFoundError, match="task_id='nosuch'"):
        ask(method, "default", "nosuch")
    queue.pend("it")
    queue.db.srem(keys.all_queues(), "default")
    with pytest.raises(QueueNotFoundError, match="default"):
        ask(method, "default", "it")
    assert queue.states() == {"it": "pending"}


@pytest.mark.parametrize("method", ACTIONS.values())
@pytest.mark.parametrize(("names", "kind"), [((" ", "x"), ValueError), (("q", ""), ValueError), (("q", 1), TypeError)])
def test_a_blank_queue_or_id_is_refused(
    ask: Ask, db: Redis, method: str, names: tuple[Any, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="must"):
        ask(method, *names)


@pytest.mark.parametrize("method", ACTIONS.values())
def test_a_group_without_tasks_is_listed_no_more(ask: Ask, queue: Seeded, method: str) -> None:
    queue.group("g", {"it": 1})
    queue.group("other", {"x": 1})
    ask(method, "default", "it")
    assert queue.db.smembers(keys.groups("default")) == {b"other"}


def test_a_lock_that_is_anothers_by_now_stays(ask: Ask, queue: Seeded) -> None:
    put_into(queue, "retry")
    queue.db.hset(keys.task("default", "it"), "unique_key", LOCK)
    queue.db.set(LOCK, "another")
    ask("delete_task", "default", "it")
    assert queue.db.get(LOCK) == b"another"


def test_a_lock_that_only_the_message_names_is_released_too(ask: Ask, queue: Seeded) -> None:
    # As asynq's AddToGroupUnique leaves it.
    queue.group("g", {"it": 1}, unique_key=LOCK)
    queue.db.set(LOCK, "it")
    ask("delete_task", "default", "it")
    assert queue.all_keys() == {keys.all_queues()}


def test_what_a_message_calls_a_lock_is_left_alone_if_it_is_none(ask: Ask, queue: Seeded) -> None:
    queue.group("g", {"it": 1}, unique_key="mine")
    queue.db.set("mine", "it")
    queue.group("h", {"odd": 1})
    queue.db.hset(keys.task("default", "odd"), "msg", b"\xff")
    ask("delete_task", "default", "it")
    ask("delete_task", "default", "odd")
    assert queue.all_keys() == {keys.all_queues(), "mine"}


def test_what_was_written_of_a_task_that_was_gone_can_be_deleted(ask: Ask, queue: Seeded) -> None:
    # asynq's ResultWriter makes the hash anew.
    queue.db.hset(keys.task("default", "it"), "result", b"late")
    for method in ("run_task", "archive_task"):
        with pytest.raises(TaskNotFoundError):
            ask(method, "default", "it")
    ask("delete_task", "default", "it")
    assert queue.all_keys() == {keys.all_queues()}


def test_a_key_that_is_no_task_is_not_found(ask: Ask, queue: Seeded) -> None:
    queue.db.set(keys.task("default", "it"), "text")
    for method in ACTIONS.values():
        with pytest.raises(TaskNotFoundError):
            ask(method, "default", "it")


def test_the_archive_is_kept_at_ten_thousand_and_tasks_and_locks_of_the_others_go(ask: Ask, queue: Seeded) -> None:
    now = int(time.time())
    queue.archive({f"{number:05}": now - 10 for number in range(10_000)})
    queue.add("archived", {"expired": now - 91 * 86_400})
    for name, lock in (("expired", LOCK), ("00000", LOCK + "0")):
        queue.db.hset(keys.task("default", name), "unique_key", lock)
        queue.db.set(lock, name)
    queue.pend("it")
    ask("archive_task", "default", "it")
    ids = queue.places()["archived"]
    assert (len(ids), ids[0], ids[-1]) == (10_000, "00001", "it")
    assert queue.db.dbsize() == 10_000 + 3, (
        "the tasks, their set, the list of queues, the counter of those that were dropped"
    )


# In a long list -----------------------------------------------------------------------------------------------------


LONG = 101_500


@pytest.fixture
def long_queue(queue: Seeded) -> Seeded:
    """Let more tasks be pending than a script looks through; they have no hashes, which nobody asks for here."""
    for start in range(0, LONG, 5000):
        queue.db.lpush(keys.pending("default"), *(f"id-{n}" for n in range(start, min(start + 5000, LONG))))
    return queue


@pytest.mark.parametrize("number", [0, 49_000, 52_000, LONG - 1])
def test_a_task_near_an_end_of_a_long_list_leaves_the_others_in_order(
    ask: Ask, long_queue: Seeded, number: int
) -> None:
    long_queue.put(f"id-{number}", "pending")
    ask("delete_task", "default", f"id-{number}")
    left = long_queue.places()["pending"]
    assert left == [f"id-{n}" for n in range(LONG - 1, -1, -1) if n != number]


@pytest.mark.parametrize("method", ["delete_task", "archive_task"])
def test_the_newest_task_takes_the_place_of_one_deep_in_a_long_list(ask: Ask, long_queue: Seeded, method: str) -> None:
    long_queue.put("id-50500", "pending")
    ask(method, "default", "id-50500")
    left = long_queue.places()["pending"]
    assert left == [f"id-{LONG - 1 if n == 50_500 else n}" for n in range(LONG - 2, -1, -1)]


def test_a_pending_task_that_is_in_no_list_is_deleted_all_the_same(ask: Ask, long_queue: Seeded) -> None:
    long_queue.put("it", "pending")
    ask("delete_task", "default", "it")
    assert not long_queue.task("it")
    assert long_queue.db.llen(keys.pending("default")) == LONG


STATES = ["pending", *PLACES, "aggregating"]
FLOWS: dict[str, Callable[[TaskState], Flow[None]]] = {
    "delete": lambda expected: actions.delete("default", "it", expected),
    "archive": lambda expected: actions.archive("default", "it", NOW_S * 10**9, expected),
    "run": lambda expected: actions.run("default", "it", NOW_S * 10**9, expected),
}


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("state", [*STATES, "active"])
def test_a_task_in_another_state_than_expected_is_left_alone(queue: Seeded, url: str, name: str, state: str) -> None:
    put_into(queue, state)
    queue.db.hset(keys.task("default", "it"), "unique_key", LOCK)
    queue.db.set(LOCK, "it")
    before = everything(queue.db)
    with closing(open_broker(url)) as broker:
        for expected in STATES:
            if expected != state:
                with pytest.raises(TaskStateError) as caught:
                    broker.drive(FLOWS[name](TaskState(expected)))
                assert caught.value.state == state
    assert everything(queue.db) == before


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("state", STATES)
def test_a_task_in_the_state_expected_is_acted_on(queue: Seeded, url: str, name: str, state: str) -> None:
    if (name, state) in (("run", "pending"), ("archive", "archived")):
        return
    put_into(queue, state)
    with closing(open_broker(url)) as broker:
        broker.drive(FLOWS[name](TaskState(state)))
    now = {"delete": None, "archive": b"archived", "run": b"pending"}[name]
    assert queue.task("it").get("state") == now


@pytest.mark.parametrize("name", FLOWS)
def test_what_has_no_state_is_not_found_where_one_is_expected(queue: Seeded, url: str, name: str) -> None:
    queue.pend("other")
    queue.db.hset(keys.task("default", "it"), "result", "late")
    with closing(open_broker(url)) as broker, pytest.raises(TaskNotFoundError):
        broker.drive(FLOWS[name](TaskState.PENDING))
    assert queue.task("it") == {"result": b"late"}
