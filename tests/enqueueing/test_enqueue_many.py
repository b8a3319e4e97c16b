"""enqueue_many: it writes what enqueue writes, in chunks, lazily, and tells what became of each task."""

import asyncio
import gc
import subprocess
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from redis import Redis

from fastq import (
    AsyncClient,
    Client,
    DuplicateTaskError,
    EnqueueResults,
    Sender,
    Task,
    TaskIDConflictError,
    TaskInfo,
    TaskState,
)
from tests.bad_input import BAD_OPTIONS
from tests.faulty_proxy import faulty_proxy
from tests.keyspace import Cells, GoldenStep, Window, differences_between, snapshot
from tests.redis_servers import RedisServer

PENDING = "asynq:{default}:pending"
FUTURE = datetime(2040, 1, 1, tzinfo=UTC)

Enqueue = Callable[..., EnqueueResults]
T = TypeVar("T")


def idle(send: Sender[T]) -> Sender[T]:
    """Return the next sender as it is: a middleware, which changes the way and nothing else."""
    return send


@pytest.fixture(params=["Client", "AsyncClient with middleware"])
def enqueue_many(request: pytest.FixtureRequest, url: str) -> Iterator[Enqueue]:
    """Return the method of a client: the one goes the way without a middleware, the other the way through it."""
    if request.param == "Client":
        with Client(url) as client:
            yield client.enqueue_many
        return

    with asyncio.Runner() as runner:
        looping = AsyncClient(url)
        looping.use(idle)
        yield lambda tasks, **options: runner.run(looping.enqueue_many(tasks, **options))
        runner.run(looping.close())


OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "queue": {"queue": "low"},
    "max_retry": {"max_retry": 0},
    "timeout": {"timeout": 5},
    "deadline": {"deadline": FUTURE},
    "unique": {"unique": 60},
    "unique_key": {"unique": 60, "unique_key": "order-42"},
    "process_at": {"process_at": FUTURE},
    "process_in": {"process_in": timedelta(minutes=5)},
    "retention": {"retention": 3600},
    "group": {"group": "g1"},
    "headers": {"headers": {"a": "1", "ü": ""}},
    "all": {
        "queue": "low",
        "max_retry": 3,
        "timeout": 5,
        "deadline": FUTURE,
        "unique": 60,
        "unique_key": "k",
        "process_in": 300,
        "retention": 1,
        "group": "g1",
        "headers": {"a": "1"},
    },
}


def written(db: Redis, act: Callable[[], Any]) -> tuple[Cells, Window, Any]:
    db.flushall()
    start_s = time.time()
    result = act()
    window = Window(start_s, time.time())
    return snapshot(db), window, result


@pytest.mark.parametrize("given_to", ["the task", "the call"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_it_writes_what_enqueue_writes(
    options: dict[str, Any], given_to: str, db: Redis, url: str, enqueue_many: Enqueue
) -> None:
    def one() -> TaskInfo:
        with Client(url) as client:
            return client.enqueue(Task("t", b"x", task_id="a"), **options)

    def many() -> EnqueueResults:
        if given_to == "the task":
            return enqueue_many([Task("t", b"x", task_id="a", **options)])
        return enqueue_many([Task("t", b"x", task_id="a")], **options)

    cells, window, info = written(db, one)
    cells_of_many, window_of_many, results = written(db, many)
    expected = GoldenStep("", 0, "", cells, (), (window,))
    assert differences_between(expected, cells_of_many, [window_of_many]) == {}
    (result,) = results
    assert isinstance(result, TaskInfo)
    assert {name: getattr(result, name) for name in TaskInfo.__slots__ if name != "next_process_at"} == {
        name: getattr(info, name) for name in TaskInfo.__slots__ if name != "next_process_at"
    }
    assert (result.next_process_at is None) == (info.next_process_at is None)


def test_queues_and_states_may_be_mixed_and_results_stay_in_order(db: Redis, enqueue_many: Enqueue) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"process_in": 60},
        {"group": "g1"},
        {"queue": "low"},
        {"queue": "low", "unique": 9},
    ]
    tasks = [Task("t", b"%d" % n, task_id=f"{n}", **kinds[n % 5]) for n in range(1500)]
    results = enqueue_many(tasks)
    assert list(results.ids()) == [f"{n}" for n in range(1500)]
    infos = [result for result in results if isinstance(result, TaskInfo)]
    assert [info.payload for info in infos] == [b"%d" % n for n in range(1500)]
    assert [info.state for info in infos[:5]] == ["pending", "scheduled", "aggregating", "pending", "pending"]
    assert [info.queue for info in infos[:5]] == ["default"] * 3 + ["low"] * 2
    pending: list[Any] = db.lrange(PENDING, 0, -1)
    assert [int(task_id) for task_id in pending] == list(range(1495, -1, -5)), "the first task is the first to run"
    assert db.zcard("asynq:{default}:scheduled") == 300
    assert db.zcard("asynq:{default}:g:g1") == 300
    assert [int(task_id) for task_id in reversed(db.lrange("asynq:{low}:pending", 0, -1))] == [
        n for n in range(1500) if n % 5 > 2
    ]
    assert db.smembers("asynq:queues") == {b"default", b"low"}


def test_options_of_the_call_win_over_those_of_the_task(enqueue_many: Enqueue) -> None:
    task = Task("t", queue="low", max_retry=1, headers={"a": "task", "b": "task"})
    (info,) = enqueue_many([task], queue="high", headers={"b": "call"})
    assert isinstance(info, TaskInfo)
    assert (info.queue, info.max_retry, dict(info.headers)) == ("high", 1, {"a": "task", "b": "call"})


def test_a_unique_key_of_the_call_joins_the_time_of_each_task(db: Redis, enqueue_many: Enqueue) -> None:
    results = enqueue_many([Task("t", unique=60), Task("u", unique=60)], unique_key="k")
    assert results.enqueued == 2
    assert len(db.keys("asynq:{default}:unique:*")) == 2


def test_an_id_given_twice_is_a_conflict_at_the_second(db: Redis, enqueue_many: Enqueue) -> None:
    results = enqueue_many([Task("t", b"1", task_id="a"), Task("t", b"2", task_id="b"), Task("t", b"3", task_id="a")])
    assert [type(result) for result in results] == [TaskInfo, TaskInfo, TaskIDConflictError]
    (conflict,) = (error for _, error in results.errors())
    assert isinstance(conflict, TaskIDConflictError)
    assert (conflict.queue, conflict.task_id) == ("default", "a")
    assert db.llen(PENDING) == 2


def test_a_lock_taken_twice_is_a_duplicate_at_the_second(db: Redis, enqueue_many: Enqueue) -> None:
    tasks = [Task("t", b"x", task_id=f"{n}", unique=60, unique_key=f"{n % 2}") for n in range(4)]
    results = enqueue_many(tasks)
    assert [type(result) for result in results] == [TaskInfo, TaskInfo, DuplicateTaskError, DuplicateTaskError]
    assert [db.get(key) for key in sorted(db.keys("asynq:{default}:unique:*"))] in ([b"0", b"1"], [b"1", b"0"])
    assert db.exists("asynq:{default}:t:2") == 0


def test_duplicates_among_chunks_are_found_too(enqueue_many: Enqueue) -> None:
    results = enqueue_many(Task("t", task_id=f"{n % 700}") for n in range(1400))
    assert results.enqueued == 700
    assert [at for at, _ in results.errors()] == list(range(700, 1400))


def test_an_id_given_in_two_states_is_enqueued_in_one(db: Redis, enqueue_many: Enqueue) -> None:
    results = enqueue_many([Task("t", task_id="a", process_in=60), Task("t", task_id="a")])
    assert results.enqueued == 1
    assert db.zcard("asynq:{default}:scheduled") + db.llen(PENDING) == 1


ITERABLES: dict[str, Callable[[list[Task]], Iterable[Task]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "deque": deque,
    "values of a dict": lambda tasks: dict(enumerate(tasks)).values(),
    "generator": lambda tasks: (task for task in tasks),
    "iterator": iter,
    "map": lambda tasks: map(Task, [task.type for task in tasks]),
}


@pytest.mark.parametrize("make", ITERABLES.values(), ids=ITERABLES.keys())
def test_any_iterable_will_do(make: Callable[[list[Task]], Iterable[Task]], db: Redis, enqueue_many: Enqueue) -> None:
    results = enqueue_many(make([Task(f"t{n}") for n in range(3)]))
    assert sorted(result.type for result in results if isinstance(result, TaskInfo)) == ["t0", "t1", "t2"]
    assert db.llen(PENDING) == 3


@pytest.mark.parametrize("nothing", [[], (), iter(())])
def test_nothing_is_nothing(nothing: Iterable[Task], db: Redis, shared_server: RedisServer) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy, Client(proxy.url) as client:
        results = client.enqueue_many(nothing)
        assert (len(results), list(results), results.enqueued) == (0, [], 0)
        assert proxy.seen == []


def tasks_in(words: Sequence[bytes]) -> int:
    """Count the tasks of a call: EVALSHA sha number-of-keys keys prefix since width, then id and message of each."""
    return (len(words) - 6 - int(words[2])) // 2


def test_chunks_are_bounded_by_count(db: Redis, shared_server: RedisServer) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy, Client(proxy.url) as client:
        client.enqueue_many(Task("t", task_id=f"{n}") for n in range(1001))
        assert [tasks_in(words) for words in proxy.seen if words[0] == b"EVALSHA"] == [500, 500, 1]


def test_chunks_are_bounded_by_bytes(db: Redis, shared_server: RedisServer) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy, Client(proxy.url) as client:
        client.enqueue_many(Task("t", bytes(100_000)) for _ in range(10))
        calls = [words for words in proxy.seen if words[0] == b"EVALSHA"]
        assert [tasks_in(words) for words in calls] == [3, 3, 3, 1]
        assert max(sum(map(len, words)) for words in calls) < 256_000 + 101_000
    assert db.llen(PENDING) == 10


def test_no_more_than_a_chunk_is_taken_ahead_of_redis(db: Redis, enqueue_many: Enqueue) -> None:
    def tasks() -> Iterator[Task]:
        for n in range(2500):
            if n % 500 == 0:
                assert db.llen(PENDING) >= n - 500, "all but the chunk that is under way are there"
            yield Task("t")

    assert enqueue_many(tasks()).enqueued == 2500


class BrokenPipelineError(Exception):
    """An error of the program that makes the tasks."""


@pytest.mark.parametrize("kind", [BrokenPipelineError, KeyboardInterrupt, ValueError])
def test_an_error_of_the_iterable_says_how_many_tasks_were_enqueued(
    kind: type[BaseException], db: Redis, url: str
) -> None:
    def endless() -> Iterator[Task]:
        n = 0
        while True:
            yield Task("t", task_id=f"{n}")
            n += 1
            if n == 1700:
                raise kind("mine")

    db.hset("asynq:{default}:t:3", "msg", b"taken")
    with Client(url) as client:
        with pytest.raises(kind, match="mine") as caught:
            client.enqueue_many(endless())
        assert caught.value.__notes__ == [
            "enqueue_many: 1500 tasks were sent before this error; 1499 of them were enqueued"
        ]
        assert db.llen(PENDING) == 1499
        client.enqueue("t")  # the client is as good as before


def test_an_error_before_the_first_chunk_says_so(db: Redis, enqueue_many: Enqueue) -> None:
    def broken() -> Iterator[Task]:
        yield Task("t")
        raise BrokenPipelineError

    with pytest.raises(BrokenPipelineError) as caught:
        enqueue_many(broken())
    assert caught.value.__notes__ == ["enqueue_many: 0 tasks were sent before this error; 0 of them were enqueued"]
    assert db.keys("*") == []


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (None, "enqueue_many takes Task objects, not NoneType: None"),
        ("email:send", "enqueue_many takes Task objects, not str: 'email:send'"),
        ({"type": "t"}, "enqueue_many takes Task objects, not dict: {'type': 't'}"),
        (Task, "enqueue_many takes Task objects, not type: <class 'fastq.task.Task'>"),
    ],
)
def test_what_is_no_task_is_refused(bad: Any, text: str, db: Redis, enqueue_many: Enqueue) -> None:
    good = [Task("t", task_id=f"{n}") for n in range(700)]
    with pytest.raises(TypeError) as caught:
        enqueue_many([*good, bad])
    assert str(caught.value) == text
    assert caught.value.__notes__ == ["this is task number 700; nothing was enqueued"]
    assert db.keys("*") == []

    with pytest.raises(TypeError) as caught:
        enqueue_many(iter([*good, bad]))
    assert str(caught.value) == text
    assert caught.value.__notes__ == ["enqueue_many: 500 tasks were sent before this error; 500 of them were enqueued"]
    assert db.llen(PENDING) == 500


@pytest.mark.parametrize("bad", [Task("t"), 7, None])
def test_what_cannot_be_gone_through_is_refused(bad: Any, db: Redis, enqueue_many: Enqueue) -> None:
    with pytest.raises(TypeError, match="object is not iterable"):
        enqueue_many(bad)
    assert db.keys("*") == []


def test_a_bad_option_of_the_call_is_refused_before_the_first_task_is_taken(db: Redis, url: str) -> None:
    tasks = iter([Task("t")])
    with Client(url) as client:
        for name, value, kind, message in BAD_OPTIONS:
            with pytest.raises(kind, match=f"^{message}$"):
                client.enqueue_many(tasks, **{name: value})
            assert db.keys("*") == [], (name, value)
    assert len(list(tasks)) == 1


@pytest.mark.parametrize("in_a_list", [True, False])
def test_a_unique_key_without_a_time_is_refused(in_a_list: bool, db: Redis, enqueue_many: Enqueue) -> None:
    tasks = [Task("t"), Task("t", unique_key="k")]
    with pytest.raises(ValueError, match=r"^unique_key='k' needs unique=") as caught:
        enqueue_many(tasks if in_a_list else iter(tasks))
    assert caught.value.__notes__ == [
        "this is task number 1; nothing was enqueued"
        if in_a_list
        else "enqueue_many: 0 tasks were sent before this error; 0 of them were enqueued"
    ]
    assert db.keys("*") == []


def test_a_unique_key_of_the_call_without_a_time_is_refused(db: Redis, enqueue_many: Enqueue) -> None:
    with pytest.raises(ValueError, match=r"^unique_key='k' needs unique="):
        enqueue_many([Task("t", unique=60), Task("t")], unique_key="k")
    assert db.keys("*") == []


def test_times_far_ahead_are_kept(db: Redis, enqueue_many: Enqueue) -> None:
    far = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    results = enqueue_many([Task("t", process_at=far, deadline=far), Task("t"), Task("t", process_at=FUTURE)])
    infos = [result for result in results if isinstance(result, TaskInfo)]
    assert [info.next_process_at for info in (infos[0], infos[2])] == [far, FUTURE]
    assert [info.state for info in infos] == [TaskState.SCHEDULED, TaskState.PENDING, TaskState.SCHEDULED]
    assert infos[0].deadline == far.replace(microsecond=0)


MEMORY: dict[str, Callable[[int], Task]] = {
    "plain": lambda n: Task("t", b"x" * 100),
    "types": lambda n: Task(f"email:send:{n % 100}", b"x" * 100),
    "ids": lambda n: Task("t", task_id=f"order-{n:030}"),
    "all options": lambda n: Task(
        "t",
        queue=f"queue-{n % 3}",
        max_retry=n % 5,
        timeout=9 + n,
        deadline=FUTURE + timedelta(seconds=n),
        unique=9 + n,
        unique_key=f"{n}",
        process_in=60 + n,
        retention=abs(n),
        headers={"n": f"{n}"},
    ),
    "groups": lambda n: Task("t", group=f"customer-{n}"),
    "every other a duplicate": lambda n: Task("t", unique=60, unique_key=f"{n // 2}"),
}


@pytest.mark.parametrize("make", MEMORY.values(), ids=MEMORY.keys())
def test_a_result_is_less_than_100_bytes(make: Callable[[int], Task], db: Redis, url: str) -> None:
    count = 2_000
    with Client(url) as client:
        client.enqueue_many(make(-n) for n in range(3, 9))  # what is made once, however many tasks come
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        results = client.enqueue_many(make(n) for n in range(count))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(results) == count
    assert (after - before) / count < 100


def test_generated_ids_take_no_memory(db: Redis, url: str) -> None:
    count = 20_000
    with Client(url) as client:
        client.enqueue_many(Task("t") for _ in range(1000))
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        results = client.enqueue_many(Task("t") for _ in range(count))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(results) == count
    assert (after - before) / count < 3


def test_ids_that_are_made_again_are_those_in_redis(db: Redis, url: str) -> None:
    def some() -> Iterator[Task]:
        for n in range(1200):
            yield Task("t", b"x" * (1000 if n < 600 else 1), task_id="own" if n == 700 else None)

    with Client(url) as client:
        results = client.enqueue_many(some())
    stored = [task_id.decode() for task_id in reversed(db.lrange(PENDING, 0, -1))]  # type: ignore[union-attr]
    assert list(results.ids()) == [info.id for info in results] == stored  # type: ignore[union-attr]
    assert stored[700] == "own"


MANY = """
import resource, sys
from fastq import Client, Task

def most_kb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)

with Client(sys.argv[1]) as client:
    client.enqueue_many(Task("t", b"x" * 100) for _ in range(10_000))
    before = most_kb()
    results = client.enqueue_many(Task("t", b"x" * 100) for _ in range(200_000))
    print(len(results), most_kb() - before)
"""


@pytest.mark.slow
def test_tasks_without_ids_of_their_own_take_less_than_10_bytes_each(db: Redis, url: str) -> None:
    """Ask the system for the most that a process of its own ever took, what it needs on the way included."""
    done = subprocess.run([sys.executable, "-c", MANY, url], capture_output=True, text=True, check=True)
    count, kb = map(int, done.stdout.split())
    assert count == db.llen(PENDING) - 10_000 == 200_000
    assert kb * 1024 / count < 10
