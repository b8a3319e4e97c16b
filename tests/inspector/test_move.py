"""Tasks on their way to another queue: whole, once, with their locks, wherever the move is cut off."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import Client, QueueNotEmptyError, Task
from fastq.broker.inspect.put import PutOutcome, TaskToPut, put_tasks
from fastq.broker.inspect.tasks import container
from fastq.broker.operation import Flow, Operation
from fastq.broker.operations.walk import Source, WalkedTask
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import open_broker
from fastq.common.states import TaskState
from fastq.errors import BrokerError
from fastq.inspector.bulk import delete_queue
from fastq.inspector.move import Move
from fastq.wire import keys
from tests.broker.harness import NOW_NS
from tests.cli.keyspaces import everything, locks
from tests.inspector.harness import Seeded
from tests.redis_servers import redis_cluster

STATES = [state for state in TaskState if state is not TaskState.ACTIVE]
FAR_S = 4_000_000_000
COUNT = 250


@pytest.fixture
def broker(url: str, db: Redis) -> Iterator[BlockingBroker]:
    broker = open_broker(url)
    yield broker
    broker.close()


def sources(queue: str, states: list[TaskState] | None = None) -> list[Source]:
    return [
        Source(queue, container(queue, state, "g"), state, "g" if state is TaskState.AGGREGATING else "")
        for state in states or STATES
    ]


def every(source: Source, task: WalkedTask) -> bool:
    return True


def moving(token: str = "t", origin: str = "a", target: str = "b") -> Move:
    return Move(origin, target, token, every)


def fill(url: str, db: Any, count: int = 2) -> None:
    """Put tasks of all states into the queue a, some with locks."""
    with Client(url) as client:
        client.enqueue_many(Task("p", b"%d" % n, task_id=f"p{n:03}", queue="a", unique=3600) for n in range(count))
        client.enqueue("s", task_id="s1", queue="a", process_in=timedelta(hours=2), unique=7200)
        client.enqueue("g", task_id="g1", queue="a", group="g", unique=7200)
    queue = Seeded(db, "a")
    queue.add("retry", {"r1": FAR_S + 0.5}, retried=3, error_msg="no")
    queue.add("archived", {"d1": 1_700_000_000})
    queue.add("completed", {"c1": FAR_S})
    db.hset(keys.task("a", "c1"), "result", b"\xff")


def readdressed(found: dict[str, Any]) -> dict[str, Any]:
    """Return what is to be found once all that is in a is in b; messages apart."""
    return {
        key.replace("{a}", "{b}"): {
            name: value.replace(b"{a}", b"{b}") for name, value in value.items() if name != b"msg"
        }
        if isinstance(value, dict)
        else value
        for key, value in found.items()
        if key != keys.all_queues()
    }


def messages(db: Any, queue: str) -> dict[str, Any]:
    prefix = keys.task_prefix(queue)
    ids = sorted(key.decode().removeprefix(prefix) for key in db.scan_iter(f"{prefix}*", count=1000))
    return {task_id: Seeded(db, queue).message(task_id) for task_id in ids}


def test_tasks_of_all_states_are_in_the_other_queue_as_they_were(url: str, db: Any, broker: BlockingBroker) -> None:
    fill(url, db)
    before, held, sent = everything(db), locks(db), messages(db, "a")
    assert broker.drive(moving().run(sources("a"))) == 7
    assert readdressed(everything(db)) == readdressed(before)
    assert {key.replace("{a}", "{b}") for key in held} == locks(db).keys()
    assert all(ttl > 3_500_000 for ttl in locks(db).values())
    for task_id, message in messages(db, "b").items():
        was = sent[task_id]
        assert message == was.replace(queue="b", unique_key=was.unique_key.replace("{a}", "{b}"))


def test_the_group_of_a_scheduled_task_is_listed_where_it_is_put(url: str, db: Any, broker: BlockingBroker) -> None:
    with Client(url) as client:
        client.enqueue("s", task_id="s1", queue="a", process_in=timedelta(hours=2), group="g")
    fields = db.hgetall(keys.task("a", "s1"))
    due_s = db.zscore(keys.scheduled("a"), "s1")
    assert broker.drive(moving().run(sources("a"))) == 1
    del fields[b"state"]
    assert broker.drive(put_tasks("c", [TaskToPut(b"s2", "scheduled", fields, str(due_s))])) == [PutOutcome.DONE]
    for queue in ("b", "c"):
        assert db.smembers(keys.groups(queue)) == {b"g"}
        assert db.zrange(keys.scheduled_groups(queue), 0, -1, withscores=True) == [(b"g", due_s)]


WRITING = {"SADD", "claim_tasks", "put_tasks", "commit_move", "unpark_tasks", "HDEL"}


class CutOffError(Exception):
    pass


def cut_off(flow: Flow[int], after: int, *, replied: bool) -> Flow[int]:
    """Run a flow that dies before its n-th writing step, or after it and before its reply."""
    step = next(flow)
    try:
        while True:
            is_write = isinstance(step, Operation) and step.name in WRITING
            after -= is_write
            if after < 0 and is_write and not replied:
                raise CutOffError
            result = yield step
            if after < 0 and is_write:
                raise CutOffError
            step = flow.send(result)
    except StopIteration as end:
        return int(end.value)


def runnable(db: Any) -> dict[str, list[str]]:
    """Return in which queues each task could be run, or is parked."""
    found: dict[str, list[str]] = {}
    for queue in ("a", "b"):
        for place, ids in Seeded(db, queue).places().items():
            for task_id in ids:
                found.setdefault(task_id, []).append(f"{queue} {place}")
    return found


@pytest.mark.parametrize("replied", [False, True])
@pytest.mark.parametrize("after", range(14))
def test_a_move_that_is_cut_off_anywhere_is_finished_by_the_next(
    url: str, db: Any, broker: BlockingBroker, after: int, replied: bool
) -> None:
    fill(url, db, COUNT)
    whole = readdressed(everything(db))
    chosen = sources("a", [TaskState.PENDING, TaskState.RETRY])
    with pytest.raises(CutOffError):
        broker.drive(cut_off(moving("first").run(chosen), after, replied=replied))
    assert all(len(places) == 1 for places in runnable(db).values())
    ids = {f"p{n:03}" for n in range(COUNT)} | {"s1", "g1", "r1", "d1", "c1"}
    assert messages(db, "a").keys() | messages(db, "b").keys() == ids
    second = moving("second")
    broker.drive(second.run(sources("a")))
    assert not any(second.stayed.values())
    assert readdressed(everything(db)) == whole
    assert not db.exists(keys.moving("a"), keys.moving("b"), keys.moved("a"), keys.moved("b"))


def test_two_moves_at_once_move_each_task_once(url: str, db: Any, broker: BlockingBroker) -> None:
    fill(url, db, COUNT)
    whole = readdressed(everything(db))
    flows = [moving("one").run(sources("a")), moving("two").run(sources("a"))]
    steps: list[Any] = [next(flow) for flow in flows]
    ended: list[int] = []
    while len(ended) < 2:
        for at, flow in enumerate(flows):
            if steps[at] is None:
                continue
            step = steps[at]
            result = broker.run_many(step) if isinstance(step, tuple) else broker.run(step)
            try:
                steps[at] = flow.send(result)
            except StopIteration as end:
                steps[at] = None
                ended.append(end.value)
    assert sum(ended) == COUNT + 5
    found = readdressed(everything(db))
    assert sorted(found.pop("asynq:{b}:pending")) == sorted(whole.pop("asynq:{b}:pending"))
    assert found == whole


def rest_of(flow: Flow[int], step: Any) -> Flow[int]:
    """Run the rest of a flow that yielded this step."""
    try:
        while True:
            step = flow.send((yield step))
    except StopIteration as end:
        return int(end.value)


def test_a_slow_move_whose_tasks_were_moved_and_done_meanwhile_does_not_bring_them_again(
    url: str, db: Any, broker: BlockingBroker
) -> None:
    fill(url, db)
    slow = moving("slow").run(sources("a", [TaskState.PENDING]))
    step: Any = next(slow)
    while not (isinstance(step, Operation) and step.name == "put_tasks"):
        step = slow.send(broker.run_many(step) if isinstance(step, tuple) else broker.run(step))
    broker.drive(moving("quick").run(sources("a", [TaskState.PENDING])))
    for key in db.keys("asynq:{b}:*"):
        db.delete(key)  # a server of b has done them all
    assert broker.drive(rest_of(slow, step)) == 0
    assert db.keys("asynq:{b}:*") == []
    assert not db.exists(keys.moving("a"), keys.moved("a"), keys.pending("a"))


@pytest.mark.parametrize("last", ["commit_move", "unpark_tasks", "HDEL"])
def test_a_slow_move_drops_its_copy_of_what_a_killed_one_had_moved_and_is_done(
    url: str, db: Any, broker: BlockingBroker, last: str
) -> None:
    fill(url, db)
    slow = moving("slow").run(sources("a", [TaskState.PENDING]))
    step = until(slow, broker, "put_tasks")
    quick = moving("quick").run(sources("a", [TaskState.PENDING]))
    begun = until(quick, broker, last)
    if last == "commit_move":
        broker.drive(rest_of(slow, step))
        assert Seeded(db, "b").places()["pending"] == ["p001", "p000"]
        assert broker.drive(rest_of(quick, begun)) == 0
    else:
        if last == "unpark_tasks":
            broker.run(begun)
        for key in db.keys("asynq:{b}:*"):
            db.delete(key)  # a server of b has done them all; quick was killed before it took its notes away
        assert broker.drive(rest_of(slow, step)) == 0
        assert db.keys("asynq:{b}:*") == []
    assert not db.exists(keys.moving("a"), keys.moving("b"), keys.pending("a"))
    broker.drive(moving("next").run(sources("a", [TaskState.PENDING])))
    assert not db.exists(keys.moved("a"))


def until(flow: Flow[int], broker: BlockingBroker, name: str) -> Any:
    """Drive a flow up to its first operation of this name, which is returned and was not done."""
    step: Any = next(flow)
    while not (isinstance(step, Operation) and step.name == name):
        step = flow.send(broker.run_many(step) if isinstance(step, tuple) else broker.run(step))
    return step


def test_what_is_parked_keeps_its_order_whatever_its_ids(url: str, db: Any, broker: BlockingBroker) -> None:
    ids = [f"{n * 7919 % 250:03}" for n in range(COUNT)]
    with Client(url) as client:
        client.enqueue_many(Task("p", task_id=task_id, queue="a") for task_id in ids)
    assert broker.drive(moving().run(sources("a", [TaskState.PENDING]))) == COUNT
    assert Seeded(db, "b").places()["pending"][::-1] == ids


def test_tasks_are_moved_though_servers_take_those_before_them(url: str, db: Any, broker: BlockingBroker) -> None:
    with Client(url) as client:
        client.enqueue_many(Task("odd" if n < 200 else "even", task_id=f"{n:03}", queue="a") for n in range(400))
    move = moving()
    move.wanted = lambda source, task: b"even" in (task.message or b"")
    flow = move.run(sources("a", [TaskState.PENDING]))
    step = until(flow, broker, "claim_tasks")
    db.rpop(keys.pending("a"), 200)
    assert broker.drive(rest_of(flow, step)) == 200


def test_a_lock_that_ends_in_this_moment_does_not_end_the_move(url: str, db: Any, broker: BlockingBroker) -> None:
    fill(url, db)
    flow = moving().run(sources("a", [TaskState.PENDING]))
    step: Any = next(flow)
    while not (isinstance(step, tuple) and step[0].name == "read_lock"):
        step = flow.send(broker.run_many(step) if isinstance(step, tuple) else broker.run(step))
    assert broker.drive(rest_of(flow, flow.send([0] * len(step)))) == 2


def test_a_task_with_thousands_of_fields_is_moved(url: str, db: Any, broker: BlockingBroker) -> None:
    fill(url, db)
    db.hset(keys.task("a", "p000"), mapping={f"f{n}": n for n in range(5_000)})
    before = db.hgetall(keys.task("a", "p000")).keys()
    assert broker.drive(moving().run(sources("a", [TaskState.PENDING]))) == 2
    assert db.hgetall(keys.task("b", "p000")).keys() == before


@pytest.mark.parametrize("name", ["commit_move", "unpark_tasks"])
def test_tasks_that_redis_does_not_show_in_this_moment_are_not_taken_for_gone(
    url: str, db: Any, broker: BlockingBroker, name: str
) -> None:
    fill(url, db)
    flow = moving().run(sources("a", [TaskState.PENDING]))
    step = until(flow, broker, name)
    db.execute_command("ACL", "SETUSER", "default", "-hmget")  # as a node refuses keys that another one has by now
    try:
        with pytest.raises(BrokerError):
            broker.drive(rest_of(flow, step))
    finally:
        db.execute_command("ACL", "SETUSER", "default", "+@all")
    assert broker.drive(moving("next").run([])) == 2
    assert Seeded(db, "b").places()["pending"] == ["p001", "p000"]


def test_a_group_that_is_no_set_keeps_its_tasks_parked(url: str, db: Any, broker: BlockingBroker) -> None:
    fill(url, db)
    flow = moving().run(sources("a", [TaskState.AGGREGATING]))
    step = until(flow, broker, "unpark_tasks")
    db.set(keys.group("b", "g"), "x")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        broker.drive(rest_of(flow, step))
    db.delete(keys.group("b", "g"))
    assert broker.drive(moving("next").run([])) == 1
    assert db.zrange(keys.group("b", "g"), 0, -1) == [b"g1"]


def test_tasks_that_the_other_queue_cannot_take_stay_where_they_were(url: str, db: Any, broker: BlockingBroker) -> None:
    fill(url, db, 5)
    with Client(url) as client:
        client.enqueue("p", b"1", queue="b", unique=3600, task_id="other")
        client.enqueue("p", b"x", queue="b", task_id="p003")
        client.enqueue("p", b"x", queue="b", task_id="r1")
    before = Seeded(db, "a").task("p001")
    move = moving()
    assert broker.drive(move.run(sources("a"))) == 10 - 3
    assert move.stayed == {PutOutcome.ID_CONFLICT: 2, PutOutcome.DUPLICATE: 1}
    assert sorted(task_id for task_id, _ in move.named) == ["p001", "p003", "r1"]
    assert Seeded(db, "a").places() == {"pending": ["p003", "p001"], "retry": ["r1"]}
    assert Seeded(db, "a").task("p001") == before
    assert db.get(keys.unique("a", "p", b"1")) == b"p001"
    assert Seeded(db, "b").places()["pending"] == ["p004", "p002", "p000", "r1", "p003", "other"]


@pytest.mark.parametrize("deep", [False, True])
def test_some_tasks_of_a_list_are_moved_and_the_others_keep_their_order(
    url: str, db: Any, broker: BlockingBroker, deep: bool
) -> None:
    count = 1_000
    with Client(url) as client:
        client.enqueue_many(Task("even" if n % 2 == 0 else "odd", task_id=f"{n:04}", queue="a") for n in range(count))
    if deep:  # the first 60 000 stay
        client_pipeline: Any = db.pipeline(transaction=False)
        client_pipeline.rpush(keys.pending("a"), *(f"dangling{n}" for n in range(60_000)))
        client_pipeline.execute()
    move = moving()
    move.wanted = lambda source, task: b"even" in (task.message or b"")
    assert broker.drive(move.run(sources("a", [TaskState.PENDING]))) == count // 2
    left = [task_id for task_id in Seeded(db, "a").places()["pending"] if not task_id.startswith("dangling")]
    odd = [f"{n:04}" for n in range(1, count, 2)]
    if deep:
        assert sorted(left) == odd
    else:
        assert left[::-1] == odd
        assert Seeded(db, "b").places()["pending"][::-1] == [f"{n:04}" for n in range(0, count, 2)]


def test_a_queue_with_parked_tasks_is_not_deleted(url: str, db: Any, broker: BlockingBroker) -> None:
    fill(url, db)
    with pytest.raises(CutOffError):
        broker.drive(cut_off(moving().run(sources("a", [TaskState.PENDING])), 2, replied=True))
    for queue in ("a", "b"):
        with pytest.raises(QueueNotEmptyError, match=f"it has 2 moving .queue='{queue}'"):
            broker.drive(delete_queue(queue, NOW_NS, force=True))
    assert broker.drive(moving().run([])) == 2


def test_tasks_move_between_the_nodes_of_a_cluster() -> None:
    with redis_cluster() as nodes:
        url = f"redis-cluster://127.0.0.1:{nodes[0].port}"
        broker = open_broker(url)
        with Client(url) as client:
            client.enqueue_many(Task("p", b"%d" % n, task_id=f"{n:03}", queue="a", unique=3600) for n in range(COUNT))
        found: dict[str, int] = {}
        for target in ("b", "c", "d", "a"):
            origin = next(iter(found), "a")
            found = {target: broker.drive(moving(f"to {target}", origin, target).run(sources(origin)))}
            assert found == {target: COUNT}
        ids: Any = broker.run(Operation("LRANGE", (keys.pending("a"),), (0, -1)))
        assert [task_id.decode() for task_id in reversed(ids)] == [f"{n:03}" for n in range(COUNT)]
        broker.close()
