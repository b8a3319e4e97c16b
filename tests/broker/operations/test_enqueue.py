"""The flow that enqueues, driven by hand: what it asks of Redis, step by step, when replies are lost."""

from typing import Any

import pytest
from redis import Redis

from fastq.broker.operation import Flow, Operation, Pause, Soon
from fastq.broker.operations.enqueue import (
    EnqueueBatch,
    EnqueueOutcome,
    EnqueueReport,
    NewTask,
    enqueue_batches,
    register_queue,
)
from fastq.broker.transport.open import open_broker
from fastq.common.states import TaskState
from fastq.errors import BrokerConnectionError, BrokerError, BrokerOutOfMemoryError, BrokerTimeoutError
from fastq.wire import keys
from fastq.wire.codec import TaskMessage, encode_task_message
from tests.redis_servers import RedisServer


def message(task_id: str, payload: bytes = b"") -> bytes:
    return encode_task_message(TaskMessage(type="t", id=task_id, queue="q", payload=payload))


def batch(*ids: str, state: TaskState = TaskState.PENDING) -> EnqueueBatch:
    return EnqueueBatch("q", state, [NewTask(task_id, message(task_id)) for task_id in ids], now_ns=5_999_999_999)


def lost() -> BrokerConnectionError:
    return BrokerConnectionError("cut", operation="enqueue", maybe_applied=True)


def away() -> BrokerConnectionError:
    return BrokerConnectionError("away", operation="HGET")


def moving() -> BrokerConnectionError:
    refused = BrokerConnectionError("the cluster is moving this queue to another node", operation="enqueue")
    refused.tries = 4
    return refused


def follow(flow: Flow[EnqueueReport], *answers: Any) -> tuple[list[list[str]], EnqueueReport | None]:
    """Answer each step of a flow; return the names of the operations asked for, and the report if it has ended."""
    asked: list[list[str]] = []
    step = next(flow)
    try:
        for answer in answers:
            while isinstance(step, (Pause, Soon)):
                step = next(flow)
            assert isinstance(step, tuple)
            asked.append([operation.name for operation in step])
            assert len(answer) == len(step)
            step = flow.send(answer)
        while isinstance(step, (Pause, Soon)):
            step = next(flow)
    except StopIteration as end:
        return asked, end.value
    return asked, None


@pytest.mark.parametrize(
    ("state", "name", "keys", "args"),
    [
        (TaskState.PENDING, "enqueue", ("asynq:{q}:pending",), ["asynq:{q}:t:", 5_999_999_999, 4]),
        (
            TaskState.SCHEDULED,
            "schedule",
            ("asynq:{q}:scheduled", "asynq:{q}:groups", "asynq:{q}:scheduled_groups"),
            ["asynq:{q}:t:", "asynq:{q}:g:", "asynq:{q}:due"],
        ),
        (TaskState.AGGREGATING, "add_to_group", ("asynq:{q}:groups",), ["asynq:{q}:t:", "asynq:{q}:g:", 5]),
    ],
)
def test_each_state_has_its_script(state: TaskState, name: str, keys: tuple[str, ...], args: list[Any]) -> None:
    task = NewTask("a", b"msg", "lock", 60, 7, "g")
    tail = {
        TaskState.PENDING: ["a", b"msg", "lock", 60],
        TaskState.SCHEDULED: ["a", b"msg", 7, "lock", 60, "g"],
        TaskState.AGGREGATING: ["a", b"msg", "g", "lock", 60],
    }[state]
    step = next(enqueue_batches((EnqueueBatch("q", state, [task], 5_999_999_999),), ()))
    assert isinstance(step, tuple)
    (operation,) = step
    assert (operation.name, operation.keys, operation.args) == (name, keys, args + tail)
    assert not operation.idempotent


def test_pending_tasks_without_locks_go_without_their_columns() -> None:
    step = next(enqueue_batches((batch("a", "b"),), ()))
    assert isinstance(step, tuple)
    assert step[0].args == ["asynq:{q}:t:", 5_999_999_999, 2, "a", message("a"), "b", message("b")]


def test_only_what_may_be_repeated_by_itself_is_called_idempotent() -> None:
    """A registration beside a task is not: it is repeated by the flow, once the task is settled."""
    flow = enqueue_batches((batch("a"),), ("q",))
    step = next(flow)
    assert isinstance(step, tuple)
    assert [operation.idempotent for operation in step] == [False, False]
    assert isinstance(flow.send([lost(), [EnqueueOutcome.ENQUEUED]]), Soon)
    assert next(flow) == (register_queue("q"),)
    assert register_queue("q").idempotent


@pytest.mark.parametrize("error", [lost(), moving()], ids=["lost", "refused for the moment"])
def test_a_registration_is_repeated_once_its_task_is_settled(error: BrokerError) -> None:
    flow = enqueue_batches((batch("a"),), ("p", "q"))
    asked, report = follow(flow, [0, error, lost()], [message("a")], [1])
    assert asked == [["SADD", "SADD", "enqueue"], ["HGET"], ["SADD"]]
    assert report == EnqueueReport(["p", "q"], [[EnqueueOutcome.ENQUEUED]])


def test_a_registration_is_not_repeated_while_no_task_has_an_answer() -> None:
    cut = lost()
    asked, report = follow(enqueue_batches((batch("a"),), ("q",)), [lost(), cut], [away()])
    assert asked == [["SADD", "enqueue"], ["HGET"]]
    assert report == EnqueueReport([], [[cut]])


def test_outcomes_are_reported_batch_by_batch() -> None:
    flow = enqueue_batches((batch("a", "b"), batch("c", state=TaskState.SCHEDULED)), ("q",))
    mixed = [EnqueueOutcome.ENQUEUED, EnqueueOutcome.DUPLICATE]
    asked, report = follow(flow, [1, mixed, [EnqueueOutcome.ID_CONFLICT]])
    assert asked == [["SADD", "enqueue", "schedule"]]
    assert report == EnqueueReport(["q"], [mixed, [EnqueueOutcome.ID_CONFLICT]])


def test_the_reply_of_the_script_is_parsed() -> None:
    step = next(enqueue_batches((batch("a", "b", "c"),), ()))
    assert isinstance(step, tuple)
    assert step[0].parse(1) == [EnqueueOutcome.ENQUEUED] * 3
    assert step[0].parse([1, 0, -1]) == [EnqueueOutcome.ENQUEUED, EnqueueOutcome.ID_CONFLICT, EnqueueOutcome.DUPLICATE]


def test_a_queue_whose_registration_failed_is_not_reported_as_registered() -> None:
    asked, report = follow(
        enqueue_batches((batch("a"),), ("q",)), [BrokerOutOfMemoryError("full"), [EnqueueOutcome.ENQUEUED]]
    )
    assert asked == [["SADD", "enqueue"]], "a refusal that lasts would be met again, with every task"
    assert report == EnqueueReport([], [[EnqueueOutcome.ENQUEUED]])


def test_a_refusal_is_each_task_s_and_nothing_is_looked_for() -> None:
    full = BrokerOutOfMemoryError("full")
    asked, report = follow(enqueue_batches((batch("a", "b"),), ()), [full])
    assert asked == [["enqueue"]]
    assert report is not None
    assert report.outcomes == [[full, full]]


def test_only_the_batch_whose_reply_was_lost_is_looked_for() -> None:
    flow = enqueue_batches((batch("a"), batch("b", state=TaskState.SCHEDULED)), ())
    asked, report = follow(flow, [[EnqueueOutcome.ENQUEUED], lost()], [message("b")])
    assert asked == [["enqueue", "schedule"], ["HGET"]]
    assert report is not None
    assert report.outcomes == [[EnqueueOutcome.ENQUEUED], [EnqueueOutcome.ENQUEUED]]


def test_what_is_missing_is_sent_again_and_the_rest_is_not() -> None:
    flow = enqueue_batches((batch("a", "b", "c"),), ())
    asked, report = follow(flow, [lost()], [message("a"), None, message("c", b"other")], [[EnqueueOutcome.ENQUEUED]])
    assert asked == [["enqueue"], ["HGET"] * 3, ["enqueue"]]
    assert report is not None
    assert report.outcomes == [[EnqueueOutcome.ENQUEUED, EnqueueOutcome.ENQUEUED, EnqueueOutcome.ID_CONFLICT]]


def test_what_is_sent_again_is_the_missing_task_alone() -> None:
    flow = enqueue_batches((batch("a", "b"),), ())
    next(flow)
    assert isinstance(flow.send([lost()]), Soon)
    assert isinstance(next(flow), Pause)
    next(flow)
    step = flow.send([message("a"), None])
    assert isinstance(step, tuple)
    (operation,) = step
    assert isinstance(operation, Operation)
    assert operation.args[3:] == ["b", message("b")]


def test_when_no_look_succeeds_it_ends_at_once_and_the_outcome_is_open() -> None:
    cut = lost()
    asked, report = follow(enqueue_batches((batch("a", "b"),), ()), [cut], [away(), away()])
    assert asked == [["enqueue"], ["HGET", "HGET"]]
    assert report is not None
    assert report.outcomes == [[cut, cut]]
    assert cut.maybe_applied
    assert str(cut.__cause__) == "HGET: away"


def test_a_task_that_one_look_missed_is_looked_for_again() -> None:
    asked, report = follow(enqueue_batches((batch("a", "b"),), ()), [lost()], [message("a"), away()], [message("b")])
    assert asked == [["enqueue"], ["HGET", "HGET"], ["HGET"]]
    assert report is not None
    assert report.outcomes == [[EnqueueOutcome.ENQUEUED, EnqueueOutcome.ENQUEUED]]


def test_a_second_refusal_leaves_open_what_became_of_the_first() -> None:
    """It was not there when we looked, and may yet come."""
    cut, full = lost(), BrokerOutOfMemoryError("full")
    _, report = follow(enqueue_batches((batch("a"),), ()), [cut], [None], [full], [None], [full], [None], [full])
    assert report is not None
    assert report.outcomes == [[cut]]
    assert cut.__cause__ is full


def test_the_pauses_grow() -> None:
    flow = enqueue_batches((batch("a"),), ())
    next(flow)
    assert isinstance(flow.send([lost()]), Soon)
    steps: list[Any] = [next(flow)]
    for _ in range(2):
        next(flow)
        flow.send([None])
        steps.append(flow.send([lost()]))
    assert steps == [Pause(0.008), Pause(0.064), Pause(0.512)]


def test_what_follows_silence_is_to_take_less_than_what_follows_a_cut() -> None:
    for error, after_silence in (
        (lost(), False),
        (BrokerTimeoutError("no reply", operation="enqueue", maybe_applied=True), True),
    ):
        flow = enqueue_batches((batch("a"),), ())
        next(flow)
        assert flow.send([error]) == Soon(after_silence)


def test_what_redis_refuses_for_the_moment_is_sent_again_alone() -> None:
    refused = moving()
    flow = enqueue_batches((batch("a"), batch("b", state=TaskState.SCHEDULED)), ())
    asked, report = follow(flow, [refused, [EnqueueOutcome.ENQUEUED]], [refused], [refused], [refused])
    assert asked == [["enqueue", "schedule"], ["enqueue"], ["enqueue"], ["enqueue"]]
    assert report == EnqueueReport([], [[refused], [EnqueueOutcome.ENQUEUED]])


def test_the_pauses_after_refusals_grow() -> None:
    flow = enqueue_batches((batch("a"),), ())
    sent = [next(flow)]
    assert flow.send([moving()]) == Soon(after_silence=False)
    pauses = [next(flow)]
    for _ in range(2):
        sent.append(next(flow))
        pauses.append(flow.send([moving()]))
    assert pauses == [Pause(0.008), Pause(0.064), Pause(0.512)]
    assert [len(step) for step in sent if isinstance(step, tuple)] == [1, 1, 1]
    assert len({step[0].words() for step in sent if isinstance(step, tuple)}) == 1, "the same each time"


def test_an_enqueue_sent_again_whose_reply_is_lost_is_looked_for() -> None:
    flow = enqueue_batches((batch("a"),), ())
    asked, report = follow(flow, [moving()], [lost()], [None], [[EnqueueOutcome.ENQUEUED]])
    assert asked == [["enqueue"], ["enqueue"], ["HGET"], ["enqueue"]]
    assert report == EnqueueReport([], [[EnqueueOutcome.ENQUEUED]])


def test_a_refusal_is_told_in_place_of_the_end_of_the_time() -> None:
    refused, late = moving(), BrokerTimeoutError("no time left", operation="enqueue")
    _, report = follow(enqueue_batches((batch("a"),), ()), [refused], [late])
    assert report == EnqueueReport([], [[refused]])


@pytest.mark.parametrize("refusal", ["wrong type", "forbidden"])
def test_an_enqueue_that_redis_refuses_leaves_neither_task_nor_lock(
    refusal: str, db: Redis, shared_server: RedisServer
) -> None:
    locks = [NewTask(name, message(name), keys.unique("q", "t", name.encode()), 60) for name in "ab"]
    locked = EnqueueBatch("q", TaskState.PENDING, locks, now_ns=1)
    db.acl_setuser("w", enabled=True, passwords=["+p"], categories=["+@all"], commands=["-lpush"], keys=["*"])
    user = "w:p@" if refusal == "forbidden" else ""
    before: set[bytes] = set()
    if refusal == "wrong type":
        db.set(keys.pending("q"), "no list")
        before = {keys.pending("q").encode()}
    broker = open_broker(f"unix://{user}{shared_server.socket_path}")
    try:
        for one in (locked, batch("c", "d")):
            (report,) = broker.drive(enqueue_batches((one,), ())).outcomes
            assert all(isinstance(outcome, BrokerError) for outcome in report)
            assert set(db.scan_iter()) == before
    finally:
        broker.close()
        db.acl_deluser("w")
