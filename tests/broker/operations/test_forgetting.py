"""What an attempt has told, its result and its progress, is never given for a later attempt or run."""

from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from fastq import Inspector
from fastq.broker.operations.finish import ANY_OWNER, Completed, Guard, Retried, complete, requeue, retry
from fastq.broker.operations.presence import write_progress
from fastq.broker.operations.repair import repair_lease
from fastq.wire import keys
from tests.broker.harness import NOW, NOW_NS, NOW_S, OURS, QUEUE, QueueBench, message, queue_bench

TOLD = {"result": b"half", "progress": b"{}"}


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def lease_ends(bench: QueueBench) -> None:
    bench.db.delete(keys.active(QUEUE))
    bench.run(repair_lease(QUEUE, ["a"], NOW_S + 60, NOW_NS))


AGAIN: dict[str, Callable[[QueueBench], object]] = {
    "fails": lambda bench: bench.run(retry(QUEUE, [Retried("a", message("a"), NOW_S)], NOW, Guard(OURS))),
    "is lost": lambda bench: bench.run(
        retry(QUEUE, [Retried("a", message("a"), NOW_S)], NOW, Guard(expired_at=NOW_S + 60))
    ),
    "is given back": lambda bench: bench.run(requeue(QUEUE, ["a"], NOW_NS, Guard(OURS))),
    "is nowhere": lease_ends,
}


@pytest.mark.parametrize("how", AGAIN)
def test_an_attempt_that_is_followed_by_another_leaves_nothing(bench: QueueBench, how: str) -> None:
    bench.activate("a")
    bench.db.hset(keys.task(QUEUE, "a"), mapping=TOLD)
    AGAIN[how](bench)
    assert bench.states()["a"] in ("retry", "pending")
    assert TOLD.keys() & bench.task("a").keys() == set()


BY_HAND: dict[str, Callable[[Inspector], object]] = {
    "one": lambda inspector: inspector.run_task(QUEUE, "a"),
    "all": lambda inspector: inspector.run_all_tasks(QUEUE, "archived"),
    "chosen": lambda inspector: inspector.retry_task(QUEUE, "a"),
}


@pytest.mark.parametrize("how", BY_HAND)
def test_a_task_that_is_run_again_by_hand_shows_nothing_of_before(bench: QueueBench, url: str, how: str) -> None:
    bench.archive({"a": NOW_S})
    bench.db.sadd(keys.all_queues(), QUEUE)
    bench.db.hset(keys.task(QUEUE, "a"), mapping={"msg": message("a"), **TOLD})
    with Inspector(url) as inspector:
        BY_HAND[how](inspector)
        info = inspector.get_task_info(QUEUE, "a")
    assert (info.state.value, info.result, info.progress) == ("pending", None, None)


def test_a_task_that_completes_without_a_result_has_none(bench: QueueBench) -> None:
    bench.activate("a", "b")
    for name in "ab":
        bench.db.hset(keys.task(QUEUE, name), mapping=TOLD)  # as a Go server leaves it
    ends = [Completed("a", message("a"), NOW_S + 60), Completed("b", message("b"), NOW_S + 60, result=b"whole")]
    bench.run(complete(QUEUE, ends, NOW, ANY_OWNER.owner))
    assert [bench.task(name).get("result") for name in "ab"] == [None, b"whole"]


def test_progress_is_forgotten_by_writing_none(bench: QueueBench) -> None:
    bench.activate("a")
    bench.run(write_progress(QUEUE, "a", OURS, b"{}"))
    assert bench.task("a")["progress"] == b"{}"
    bench.run(write_progress(QUEUE, "a", OURS, b""))
    assert "progress" not in bench.task("a")
