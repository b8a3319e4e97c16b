"""How the ends of many tasks are read: in parts, and each round trip with the time of a call."""

from collections.abc import Iterator

import pytest
from redis import Redis

from fastq.broker.operation import Receive, Send
from fastq.broker.operations.ends import look_at, parts_of, read_ends, read_rest
from fastq.wire import keys
from fastq.wire.codec import TaskMessage, encode_task_message
from fastq.wire.inbox import EndKind, TaskEnd
from tests.broker.harness import QUEUE, QueueBench, queue_bench

RESULT = TaskEnd(EndKind.RESULT)


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def test_many_tasks_are_looked_at_in_parts() -> None:
    tasks = [(f"q{number % 3}", f"{number}", f"s{number}") for number in range(10_000)]
    parts = list(parts_of(tasks))
    sizes = [sum(len(submits) for _, submits in part) for part in parts]
    assert (max(sizes), sum(sizes)) == (2_000, 10_000)
    assert sorted((queue, *submit) for part in parts for queue, submits in part for submit in submits) == sorted(tasks)
    (operations,) = (next(look_at(part)) for part in parts[:1])
    assert isinstance(operations, tuple)
    assert [len(operation.keys) for operation in operations] == [500] * 4


def test_big_results_take_several_calls_each_with_its_own_time(bench: QueueBench) -> None:
    for number in range(3):
        bench.db.hset(keys.task(QUEUE, f"{number}"), mapping={"state": "completed", "result": b"x" * 300_000})
    flow = read_rest({(QUEUE, f"{number}", ""): RESULT for number in range(3)})
    step, calls = next(flow), 0
    try:
        while True:
            assert isinstance(step, Send), "a limit of the client begins anew with it"
            calls += 1
            step = flow.send(step)
            assert isinstance(step, Receive)
            step = flow.send([bench.run(step.ticket.operations[0])])
    except StopIteration as end:
        found = end.value
    assert calls == 3
    assert all(len(end.result) == 300_000 for end in found.values())


def test_what_is_no_task_is_gone(bench: QueueBench) -> None:
    bench.db.set(keys.task(QUEUE, "a"), "not a hash")
    found = bench.run(read_ends(QUEUE, [("a", ""), ("b", "s")]))
    assert [end.kind for end in found if end is not None] == ["gone", "gone"]


def test_a_task_that_another_submit_has_made_is_gone(bench: QueueBench) -> None:
    for state in ("completed", "archived", "pending"):
        message = encode_task_message(TaskMessage(id="a", queue=QUEUE, type="t", headers={"fastq-submit": "second"}))
        bench.db.hset(keys.task(QUEUE, "a"), mapping={"msg": message, "state": state, "result": b"2"})
        first, second, anyone = (bench.run(read_ends(QUEUE, [("a", submit)]))[0] for submit in ("first", "second", ""))
        assert first is not None
        assert first.kind is EndKind.GONE
        assert second == anyone
        assert (second is None) is (state == "pending")
