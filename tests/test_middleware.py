"""Client middleware: it sees every task before it is sent, may replace it, and hears what became of it."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from redis import Redis

from fastq import (
    AsyncClient,
    BrokerError,
    Client,
    DuplicateTaskError,
    EnqueueResults,
    RunningTask,
    Sender,
    ServeMux,
    Task,
    TaskIDConflictError,
    TaskInfo,
)
from fastq.testing import AsyncInlineClient, InlineClient
from fastq.wire.codec import decode_task_message

T = TypeVar("T")
PENDING = "asynq:{default}:pending"


class Recorder:
    """A middleware for each kind of client: notes what it was given, and adds a header."""

    def __init__(self, name: str = "a") -> None:
        self.name = name
        self.calls: list[list[Task]] = []

    def __call__(self, send: Sender[T]) -> Sender[T]:
        def enqueue(tasks: Sequence[Task]) -> T:
            self.calls.append(list(tasks))
            return send([task.replace(headers={**task.headers, self.name: str(len(task.headers))}) for task in tasks])

        return enqueue


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def mux() -> ServeMux:
    mux: ServeMux = ServeMux()

    @mux.handler("t")
    def handle(task: RunningTask) -> dict[str, str]:
        return dict(task.headers)

    return mux


def headers_of(db: Redis, task_id: str, queue: str = "default") -> Any:
    data: Any = db.hget(f"asynq:{{{queue}}}:t:{task_id}", "msg")
    return decode_task_message(data).headers


def test_it_replaces_a_task_before_it_is_sent(db: Redis, client: Client) -> None:
    recorder, task = Recorder(), Task("t", b"x", headers={"mine": "1"})
    client.use(recorder)
    info = client.enqueue(task, task_id="i")
    assert isinstance(info, TaskInfo)
    assert info.headers == headers_of(db, "i") == {"mine": "1", "a": "1"}
    assert (info.id, info.payload, info.queue) == ("i", b"x", "default")
    assert (task.headers, task.options) == ({"mine": "1"}, {}), "the caller's task stays as it is"


def test_it_sees_the_options_of_the_task_and_of_the_call(db: Redis, client: Client) -> None:
    recorder = Recorder()
    client.use(recorder)
    client.enqueue(Task("t", queue="low", max_retry=1, headers={"x": "1", "y": "1"}), max_retry=2, headers={"y": "2"})
    client.enqueue_many([Task("t", queue="low")], max_retry=2)
    (first,), (second,) = recorder.calls
    assert first.options == second.options == {"queue": "low", "max_retry": 2}
    assert (first.headers, second.headers) == ({"x": "1", "y": "2"}, {})


def test_the_first_is_outermost(db: Redis, client: Client) -> None:
    first, second = Recorder("first"), Recorder("second")
    client.use(first)
    client.use(second, Recorder("third"))
    assert client.enqueue("t").headers == {"first": "0", "second": "1", "third": "2"}
    assert [task.headers for task in second.calls[0]] == [{"first": "0"}]


def test_many_come_500_at_a_time(db: Redis, client: Client) -> None:
    recorder = Recorder()
    client.use(recorder)
    results = client.enqueue_many((Task("t") for _ in range(1001)), queue="low")
    assert [len(tasks) for tasks in recorder.calls] == [500, 500, 1]
    assert (len(results), results.enqueued, len(set(results.ids()))) == (1001, 1001, 1001)
    assert {tuple(headers_of(db, task_id, "low")) for task_id in results.ids()} == {("a",)}
    info = results[0]
    assert isinstance(info, TaskInfo)
    assert (info.queue, info.headers) == ("low", {}), "what an iterator gave is not kept"
    listed = client.enqueue_many([Task("t", b"x")])[0]
    assert isinstance(listed, TaskInfo)
    assert (listed.payload, listed.headers) == (b"x", {"a": "0"})


def test_it_hears_what_became_of_the_tasks(db: Redis, client: Client) -> None:
    heard: list[EnqueueResults] = []

    def hearing(send: Sender) -> Sender:
        def enqueue(tasks: Sequence[Task]) -> EnqueueResults:
            heard.append(send(tasks))
            return heard[-1]

        return enqueue

    client.use(hearing)
    info = client.enqueue("t", task_id="a", unique=60)
    with pytest.raises(TaskIDConflictError, match="task_id='a'"):
        client.enqueue("t", task_id="a")
    with pytest.raises(DuplicateTaskError):
        client.enqueue("t", unique=60)
    assert heard[0][0] == info
    assert [type(error) for results in heard for _, error in results.errors()] == [
        TaskIDConflictError,
        DuplicateTaskError,
    ]
    assert [results.enqueued for results in heard] == [1, 0, 0]
    assert db.llen(PENDING) == 1


def test_what_it_raises_the_call_raises_and_nothing_is_sent(db: Redis, client: Client) -> None:
    def refusing(send: Sender) -> Sender:
        def enqueue(tasks: Sequence[Task]) -> EnqueueResults:
            if any(task.payload == b"bad" for task in tasks):
                raise PermissionError("not this one")
            return send(tasks)

        return enqueue

    client.use(refusing)
    with pytest.raises(PermissionError, match="not this one"):
        client.enqueue("t", b"bad")
    assert db.keys("*") == []
    with pytest.raises(PermissionError) as raised:
        client.enqueue_many(Task("t", b"bad" if number == 600 else b"") for number in range(1000))
    assert raised.value.__notes__ == ["enqueue_many: 500 tasks were sent before this error; 500 of them were enqueued"]
    assert db.llen(PENDING) == 500


def test_bad_input_never_comes_to_it(db: Redis, client: Client) -> None:
    recorder = Recorder()
    client.use(recorder)
    with pytest.raises(TypeError, match="unknown option 'que'"):
        client.enqueue("t", que="low")  # type: ignore[call-arg]  # what is tested
    with pytest.raises(TypeError, match="enqueue_many takes Task objects, not str"):
        client.enqueue_many(["t"], queue="low")  # type: ignore[list-item]  # what is tested
    with pytest.raises(TypeError, match="enqueue_many takes Task objects, not str"):
        client.enqueue_many(iter(["t"]), queue="low")  # type: ignore[arg-type]  # what is tested
    assert (recorder.calls, db.keys("*")) == ([], [])


def test_a_broken_redis_is_heard_once_with_all_results_so_far(db: Redis, client: Client) -> None:
    seen: list[BrokerError] = []

    def hearing(send: Sender) -> Sender:
        def enqueue(tasks: Sequence[Task]) -> EnqueueResults:
            try:
                return send(tasks)
            except BrokerError as error:
                seen.append(error)
                raise

        return enqueue

    def tasks() -> Iterator[Task]:
        for number in range(1500):
            if number == 1000:
                db.set("asynq:{broken}:pending", "no list")
            yield Task("t", queue="broken" if number == 1200 else "default")

    client.use(hearing)
    with pytest.raises(BrokerError) as raised:
        client.enqueue_many(tasks())
    assert seen == [raised.value]
    assert len(raised.value.results or ()) == 1500
    assert raised.value.__notes__ == [
        "enqueue_many: 1499 tasks were enqueued before this; the error's results attribute tells of the 1500 tasks "
        "that were tried, the rest was not"
    ]


@pytest.mark.parametrize(
    ("middleware", "message"),
    [
        (lambda send: None, "must return a sender, not None"),
        (5, "'int' object is not callable"),
    ],
)
def test_what_is_no_middleware_is_refused_at_once(middleware: Any, message: str, client: Client) -> None:
    client.use(Recorder())
    with pytest.raises(TypeError, match=message):
        client.use(middleware)
    client.use(Recorder("b"))
    assert client.enqueue("t").headers == {"a": "0", "b": "1"}, "those added before and after count"


def test_an_async_sender_is_for_an_async_client(client: Client) -> None:
    def waiting(send: Sender[Awaitable[EnqueueResults]]) -> Sender[Awaitable[EnqueueResults]]:
        async def enqueue(tasks: Sequence[Task]) -> EnqueueResults:
            return await send(tasks)

        return enqueue

    with pytest.raises(TypeError, match="returns an async function, which a Client would never await"):
        client.use(waiting)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (None, TypeError, "a client's middleware returned None, not the sender's EnqueueResults"),
        (EnqueueResults(), ValueError, "a client's middleware returned 0 results for 1 tasks"),
    ],
)
def test_a_middleware_that_loses_the_results_is_named(
    returned: Any, error: type[Exception], message: str, db: Redis, client: Client
) -> None:
    client.use(lambda send: lambda tasks: returned)
    with pytest.raises(error, match=re.escape(message)):
        client.enqueue("t")
    with pytest.raises(error, match=re.escape(message)):
        client.enqueue_many([Task("t")])


def test_what_it_sends_that_is_no_task_is_named(client: Client, mux: ServeMux) -> None:
    for each in (client, InlineClient(mux)):
        each.use(lambda send: lambda tasks: send(["t"]))  # type: ignore[list-item]  # what is tested
        with pytest.raises(TypeError, match="enqueue_many takes Task objects, not str: 't'"):
            each.enqueue("t")


def test_what_it_sends_at_once_is_cut_for_redis(db: Redis, client: Client) -> None:
    def doubling(send: Sender) -> Sender:
        def enqueue(tasks: Sequence[Task]) -> EnqueueResults:
            assert send([Task("copy") for _ in tasks] * 2).enqueued == 2 * len(tasks)
            return send(tasks)

        return enqueue

    client.use(doubling)
    db.config_resetstat()
    client.enqueue_many([Task("t") for _ in range(500)])
    commands: Any = db.info("commandstats")
    scripts = sum(commands.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))
    assert (db.llen(PENDING), scripts - commands["cmdstat_evalsha"]["failed_calls"]) == (1500, 3)


def test_an_async_client_takes_plain_and_async_ones(db: Redis, url: str) -> None:
    recorder, order = Recorder(), list[str]()

    def waiting(send: Sender[Awaitable[EnqueueResults]]) -> Sender[Awaitable[EnqueueResults]]:
        async def enqueue(tasks: Sequence[Task]) -> EnqueueResults:
            order.append("before")
            await asyncio.sleep(0)
            results = await send(tasks)
            order.append("after")
            return results

        return enqueue

    async def run() -> None:
        async with AsyncClient(url) as client:
            client.use(waiting, recorder)
            client.use(waiting)
            assert (await client.enqueue("t", task_id="i")).headers == {"a": "0"}
            assert order == ["before", "before", "after", "after"]
            results = await client.enqueue_many(Task("t") for _ in range(501))
            assert results.enqueued == 501
            with pytest.raises(TaskIDConflictError):
                await client.enqueue("t", task_id="i")

    asyncio.run(run())
    assert [len(tasks) for tasks in recorder.calls] == [1, 500, 1, 1]
    assert headers_of(db, "i") == {"a": "0"}


def test_an_inline_client_takes_it_too(mux: ServeMux) -> None:
    client = InlineClient(mux)
    client.use(Recorder())
    assert client.enqueue("t").headers == {"a": "0"}
    client.enqueue_many([Task("t", headers={"b": "1"})])
    assert [run.json() for run in client.runs] == [{"a": "0"}, {"b": "1", "a": "1"}]


def test_an_async_inline_client_takes_it_too(mux: ServeMux) -> None:
    async def run() -> AsyncInlineClient:
        client = AsyncInlineClient(mux)
        client.use(Recorder())
        await client.enqueue("t")
        await client.enqueue_many([Task("t", headers={"b": "1"})])
        return client

    assert [run.json() for run in asyncio.run(run()).runs] == [{"a": "0"}, {"b": "1", "a": "1"}]


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_client_without_it_makes_no_chain(make: Callable[[str], Client | AsyncClient], url: str) -> None:
    assert make(url)._through is None
