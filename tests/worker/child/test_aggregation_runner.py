"""The aggregation runner: a group's messages in, a task ready to be enqueued out, or what is wrong."""

import time
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from fastq import Task
from fastq.common.states import TaskState
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.runner import RunnerMisuseError
from fastq.running import GroupedTask
from fastq.wire import keys
from fastq.wire.codec import decode_task_message
from fastq.worker.child.aggregation_runner import AggregationRunner, load
from fastq.worker.child.handler_runner import load as load_app
from fastq.worker.shared.requests import (
    Combined,
    Unreadable,
    aggregation_answer,
    aggregation_argument,
    aggregation_request,
    runner_argument,
)
from tests.worker.child.test_handler_runner import mux
from tests.worker.harness import FakeContext, encoded

HERE = "tests.worker.child.test_aggregation_runner"
APP = "tests.worker.child.test_handler_runner:mux"
not_callable = 5
assert mux.patterns()


def join(group: str, tasks: Sequence[GroupedTask]) -> Task:
    return Task(group, b"".join(task.payload for task in tasks))


async def coroutine(group: str, tasks: Sequence[GroupedTask]) -> Task:
    return Task(group)


def answer_of(aggregator: Any, messages: Sequence[bytes], group: str = "g") -> Combined | Unreadable | str:
    answer = AggregationRunner(aggregator).run(aggregation_request("q", group, messages), FakeContext())
    assert answer is not None
    kind, data = answer
    if kind is EventKind.RESULT:
        return aggregation_answer(data)
    assert kind is EventKind.FAILED
    return str(orjson.loads(data)[0])


def combined_by(task: Task) -> Combined:
    answer = answer_of(lambda group, tasks: task, [encoded()])
    assert isinstance(answer, Combined)
    return answer


def test_a_group_becomes_the_task_that_the_aggregator_returns() -> None:
    before_ns = time.time_ns()
    messages = [encoded(payload=b"1\n"), encoded(payload=b""), encoded(payload=b"\xff3")]
    answer = answer_of(load(aggregation_argument(f"{HERE}:join"))._aggregator, messages, "gröup")
    assert isinstance(answer, Combined)
    message = decode_task_message(answer.task.message)
    assert (message.type, message.payload, message.queue, message.retry) == ("gröup", b"1\n\xff3", "q", 25)
    assert (message.id, len(message.id), message.group_key) == (answer.task.id, 36, "")
    assert (answer.state, answer.locks) == (TaskState.PENDING, {})
    assert before_ns <= answer.now_ns <= time.time_ns()


def test_options_of_the_returned_task_count_but_its_queue_is_that_of_the_group() -> None:
    plain = combined_by(Task("w", b"x", queue="other", task_id="id-w", unique=90))
    assert (plain.task.id, plain.task.lock, plain.task.lock_ttl_s) == ("id-w", keys.unique("q", "w", b"x"), 90)
    later = combined_by(Task("w", process_in=60, group="h"))
    assert (later.state, later.task.group) == (TaskState.SCHEDULED, "h")
    assert later.task.run_at_s == (later.now_ns + 60 * 10**9) // 10**9
    assert combined_by(Task("w", group="h")).state is TaskState.AGGREGATING


def test_locks_of_the_parts_are_told_by_their_place() -> None:
    answer = answer_of(join, [encoded(), encoded(unique_key="lock-1"), encoded()])
    assert isinstance(answer, Combined)
    assert answer.locks == {1: "lock-1"}


def test_messages_that_are_none_are_told_and_the_aggregator_is_not_called() -> None:
    answer = answer_of(None, [encoded(), b"\xff", b"", encoded(payload=b"x")[:-1]])
    assert isinstance(answer, Unreadable)
    assert answer.reasons.keys() == {1, 3}
    assert all(answer.reasons.values())


@pytest.mark.parametrize("returned", [None, "task", b"", [], Task])
def test_what_is_no_task_is_refused(returned: object) -> None:
    says = answer_of(lambda group, tasks: returned, [encoded()])
    assert isinstance(says, str)
    assert says.startswith("TypeError: the group aggregator must return a fastq.Task, not ")


@pytest.mark.parametrize("error", [ValueError("bad \ud800 text"), SystemExit(3), LookupError()])
def test_what_the_aggregator_raises_is_told_with_its_place(error: BaseException) -> None:
    def broken(group: str, tasks: Sequence[GroupedTask]) -> Task:
        raise error

    says = answer_of(broken, [encoded()])
    assert isinstance(says, str)
    assert says.startswith(type(error).__name__)
    assert "test_aggregation_runner.py:" in says


def test_a_part_may_be_returned_and_a_blank_type_be_seen() -> None:
    seen: list[str] = []

    def first(group: str, tasks: Sequence[GroupedTask]) -> Task:
        seen.extend(task.type for task in tasks)
        return tasks[1]

    answer = answer_of(first, [encoded(type=""), encoded(id="id-2", payload=b"2", headers={"a": "1"})])
    assert isinstance(answer, Combined)
    message = decode_task_message(answer.task.message)
    assert (seen, message.payload, message.headers) == (["", "t"], b"2", {"a": "1"})
    assert message.id != "id-2"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nosuch", "has no 'nosuch'"),
        ("not_callable", "group_aggregator=.* is not callable: 5"),
        ("coroutine", "group_aggregator=.* is a coroutine, which would not run"),
    ],
)
def test_a_name_that_leads_to_no_aggregator_is_refused_here_and_where_the_app_is_loaded(name: str, says: str) -> None:
    with pytest.raises(RunnerMisuseError, match=says):
        load(aggregation_argument(f"{HERE}:{name}"))
    with pytest.raises(RunnerMisuseError, match=says):
        load_app(runner_argument(APP, aggregator=f"{HERE}:{name}"))
    load_app(runner_argument(APP, aggregator=f"{HERE}:join"))
