"""The walk through a list or set, while others take from it and add to it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from fastq.broker.inspect.bulk import Chosen, run_some
from fastq.broker.operations.walk import Source, Walk, WalkPage
from fastq.common.states import TaskState
from fastq.wire import keys
from tests.broker.harness import NOW_NS, QUEUE, QueueBench, queue_bench

PENDING = Source(QUEUE, keys.pending(QUEUE), TaskState.PENDING)
RETRY = Source(QUEUE, keys.retry(QUEUE), TaskState.RETRY)


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as bench:
        yield bench


def fill(bench: QueueBench, source: Source, count: int) -> list[str]:
    ids = [f"{number:04}" for number in range(count)]
    if source is PENDING:
        bench.pend(*ids)
    else:
        for task_id in ids:
            bench.put(task_id, "retry")
        bench.db.zadd(source.key, {task_id: 7.5 + int(task_id) // 10 for task_id in ids})  # ten a score
    return ids


def walked(
    bench: QueueBench, source: Source, between: Callable[[WalkPage], object] = lambda page: None, size: int = 10
) -> list[str]:
    walk, found = Walk(source), []
    while (page := bench.run(walk.page(size))).tasks:
        found += [task.id.decode() for task in page.tasks]
        walk.passed(page, page.tasks)
        between(page)
    return found


@pytest.mark.parametrize("source", [PENDING, RETRY])
@pytest.mark.parametrize("size", [1, 7, 10, 200])
def test_all_tasks_come_once_in_their_order(bench: QueueBench, source: Source, size: int) -> None:
    ids = fill(bench, source, 60)
    assert walked(bench, source, size=size) == ids
    assert walked(bench, Source("no", "asynq:{no}:pending", TaskState.PENDING)) == []


def test_fields_and_scores_come_as_they_are(bench: QueueBench) -> None:
    bench.put("a", "retry")
    bench.db.hset(keys.task(QUEUE, "a"), mapping={b"\xff": b"\x00\xfe", "result": b""})
    bench.db.zadd(RETRY.key, {"a": 1.1234567890123456, "dangling": 2, "odd": 3})
    bench.db.set(keys.task(QUEUE, "odd"), "no hash")
    a, dangling, odd = bench.run(Walk(RETRY).page()).tasks
    assert a.fields == bench.db.hgetall(keys.task(QUEUE, "a"))
    assert (float(a.score), a.message) == (1.1234567890123456, a.fields[b"msg"])
    assert (dangling.id, dangling.fields, odd.fields) == (b"dangling", {}, {})


def test_a_page_ends_with_the_task_that_is_too_much(bench: QueueBench) -> None:
    bench.pend("a", "b", "c", payload=b"x" * 200_000)
    assert [task.id for task in bench.run(Walk(PENDING).page()).tasks] == [b"a", b"b"]
    assert walked(bench, PENDING, size=200) == ["a", "b", "c"]


@pytest.mark.parametrize("source", [PENDING, RETRY])
def test_what_leaves_at_the_old_end_is_not_missed_by_the_rest(bench: QueueBench, source: Source) -> None:
    ids = fill(bench, source, 60)

    def take(page: WalkPage) -> None:
        if source is PENDING:
            bench.db.rpop(source.key, 4)
        else:
            bench.db.zpopmin(source.key, 4)

    assert walked(bench, source, take) == ids


def test_when_all_that_was_passed_has_left_the_walk_begins_with_what_there_is(bench: QueueBench) -> None:
    ids = fill(bench, PENDING, 60)
    assert walked(bench, PENDING, lambda page: bench.db.rpop(PENDING.key, 10)) == ids
    ids = fill(bench, RETRY, 60)
    assert walked(bench, RETRY, lambda page: bench.db.zrem(RETRY.key, *(task.id for task in page.tasks))) == ids


@pytest.mark.parametrize("source", [PENDING, RETRY])
def test_what_leaves_and_comes_elsewhere_moves_no_others(bench: QueueBench, source: Source) -> None:
    ids = fill(bench, source, 60)
    taken = []

    def change(page: WalkPage) -> None:
        passed = page.tasks[-1].id
        taken.append(passed.decode())
        if source is PENDING:
            bench.db.lrem(source.key, 1, passed)
            bench.db.rpush(source.key, f"back {passed.decode()}")
        else:
            bench.db.zadd(source.key, {passed: 900, f"new {passed.decode()}": 0})

    found = walked(bench, source, change)
    assert found[:60] == ids
    assert found[60:] == (taken[:6] if source is RETRY else [])


def test_a_passed_task_deep_in_a_list_that_shrank_is_looked_for(bench: QueueBench) -> None:
    ids = [f"{number:05}" for number in range(6000)]
    bench.db.lpush(PENDING.key, *ids)
    walk = Walk(PENDING)
    while (page := bench.run(walk.page(200))).place < 5000:
        walk.passed(page, page.tasks)
    walk.passed(page, page.tasks)
    bench.db.rpop(PENDING.key, 3000)
    assert [task.id.decode() for task in bench.run(walk.page(3)).tasks] == ids[5200:5203]


def test_chosen_tasks_run_only_if_they_are_as_they_were_seen(bench: QueueBench) -> None:
    fill(bench, RETRY, 4)
    page = bench.run(Walk(RETRY).page())
    bench.put("0001", "retry", error_msg="another")
    bench.put("0002", "archived")
    bench.db.zrem(RETRY.key, "0003")
    chosen: list[Any] = [Chosen.of(task) for task in page.tasks]
    assert bench.run(run_some(RETRY, chosen, NOW_NS)) == (4, 1, [])
    assert bench.places() == {"pending": ["0000"], "retry": ["0001", "0002"]}
    assert bench.run(run_some(RETRY, [Chosen(b"0001"), Chosen(b"0002"), Chosen(b"no")], NOW_NS)) == (3, 1, [])
    assert bench.task("0001")["pending_since"] == str(NOW_NS).encode()
