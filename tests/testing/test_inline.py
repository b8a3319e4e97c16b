"""InlineClient: what is enqueued runs at once, and conflicts as it would in Redis."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fastq import (
    AsyncClient,
    Client,
    DuplicateTaskError,
    EnqueueResults,
    Hooks,
    RateLimited,
    RevokeTask,
    RunningTask,
    ServeMux,
    Task,
    TaskIDConflictError,
    TaskInfo,
    TaskState,
    current_task,
)
from fastq.testing import AsyncInlineClient, InlineClient, RunOutcome, assert_enqueued


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def client(ran: list[str]) -> InlineClient:
    mux: ServeMux = ServeMux()
    client = InlineClient(mux)

    @mux.handler("note")
    def note(task: RunningTask) -> str:
        ran.append(task.id)
        return task.id

    @mux.handler("chain")
    def chain(task: RunningTask) -> None:
        ran.append(f"{task.json()} begins")
        if task.json():
            client.enqueue("chain", task.json() - 1)
        ran.append(f"{task.json()} ends")

    @mux.handler("fail")
    def fail(task: RunningTask) -> None:
        if task.retried < 2:
            raise ValueError(f"attempt {task.retried}")

    @mux.handler("revoke")
    def revoke(task: RunningTask) -> None:
        raise RevokeTask

    return client


def test_a_task_runs_when_it_is_enqueued(client: InlineClient, ran: list[str]) -> None:
    with client:
        client.ping()
        info = client.enqueue(Task("note", b"x"), task_id="a", queue="low")
    assert isinstance(info, TaskInfo)
    assert (info.id, info.queue, info.state, info.payload) == ("a", "low", TaskState.PENDING, b"x")
    assert ran == ["a"]
    assert [(run.id, run.json()) for run in client.runs] == [("a", "a")]
    assert client.enqueued == [info]


def test_what_a_handler_enqueues_runs_after_it(client: InlineClient, ran: list[str]) -> None:
    client.enqueue("chain", 2)
    assert ran == ["2 begins", "2 ends", "1 begins", "1 ends", "0 begins", "0 ends"]
    client.enqueue("chain", 2000)  # deeper than Python's stack
    assert len(client.runs) == 2004


def test_many_tasks_run_in_order_and_conflicts_are_their_results(client: InlineClient, ran: list[str]) -> None:
    tasks = [Task("note", task_id="a", retention=60), Task("note", task_id="a"), Task("note", task_id="b")]
    results = client.enqueue_many(iter(tasks), queue="low")
    assert [type(result) for result in results] == [TaskInfo, TaskIDConflictError, TaskInfo]
    assert ran == ["a", "b"]
    with pytest.raises(TypeError, match="enqueue_many takes Task objects, not str"):
        client.enqueue_many(["note"])  # type: ignore[list-item]  # what is tested


def test_results_of_many_are_those_of_a_client(client: InlineClient, ran: list[str]) -> None:
    tasks = [Task("note", b"x", task_id="a", retention=60), Task("note", task_id="a"), Task("note", b"y", task_id="b")]
    results = client.enqueue_many(tasks)
    assert isinstance(results, EnqueueResults)
    assert (list(results.ids()), results.enqueued, len(results)) == (["a", "a", "b"], 2, 3)
    [(index, error)] = results.errors()
    assert (index, type(error)) == (1, TaskIDConflictError)
    assert [result.payload for result in results if isinstance(result, TaskInfo)] == [b"x", b"y"]
    again = client.enqueue_many(iter([Task("note", b"z", headers={"a": "1"})]))
    assert isinstance(again[0], TaskInfo)
    assert (again[0].payload, again[0].headers) == (b"", {}), "a client does not keep what an iterator gave"
    assert (client.enqueued[-1].payload, client.runs[-1].payload) == (b"z", b"z")


def test_a_list_is_checked_before_any_of_it_runs(client: InlineClient, ran: list[str]) -> None:
    with pytest.raises(TypeError, match="unknown option 'que'"):
        client.enqueue_many([Task("note")], que="low")  # type: ignore[call-arg]  # refused by mypy, too
    with pytest.raises(TypeError, match="enqueue_many takes Task objects, not str") as raised:
        client.enqueue_many([Task("note"), "note"])  # type: ignore[list-item]  # what is tested
    assert "this is task number 1; nothing was enqueued" in raised.value.__notes__
    assert (ran, client.enqueued) == ([], [])


def test_a_conflict_in_a_handler_is_no_result_of_its_task() -> None:
    mux = ServeMux()
    client = InlineClient(mux, raise_errors=True)

    @mux.handler("parent")
    def parent(task: RunningTask) -> None:
        client.enqueue("child", task_id=task.id)

    with pytest.raises(TaskIDConflictError):
        client.enqueue_many([Task("parent", task_id="p")])


def test_an_inline_client_stands_where_a_client_is_asked_for(client: InlineClient, ran: list[str]) -> None:
    def register(client: Client) -> str:
        with client as entered:
            return entered.enqueue("note").id

    assert [register(client)] == ran


def test_tasks_of_another_time_and_of_groups_wait(client: InlineClient, ran: list[str]) -> None:
    states = [client.enqueue("note", task_id="s", process_in=60).state]
    states += [client.enqueue("note", task_id="g", group="g").state]
    assert states == [TaskState.SCHEDULED, TaskState.AGGREGATING]
    assert (ran, [message.id for message in client.waiting]) == ([], ["s", "g"])
    assert [run.id for run in client.run_waiting()] == ran == ["s", "g"]
    assert client.waiting == []


def test_a_failed_task_waits_for_its_next_attempt(client: InlineClient) -> None:
    client.enqueue("fail", task_id="f")
    for retried in (1, 2):
        (waiting,) = client.waiting
        assert (waiting.retried, waiting.error_msg.startswith(f"ValueError: attempt {retried - 1}")) == (retried, True)
        client.run_waiting()
    assert [run.outcome for run in client.runs] == [RunOutcome.RETRY, RunOutcome.RETRY, RunOutcome.DONE]
    assert client.waiting == []
    client.enqueue("fail", task_id="f", max_retry=0)
    assert (client.runs[-1].outcome, client.waiting) == (RunOutcome.ARCHIVE, [])


def test_errors_are_raised_if_asked_for() -> None:
    mux: ServeMux = ServeMux()
    boom = LookupError("boom")

    @mux.handler("fail")
    def fail(task: RunningTask) -> None:
        raise boom

    hooks = Hooks(is_failure=lambda error: False)
    client = InlineClient(mux, hooks=hooks, raise_errors=True)
    with pytest.raises(LookupError) as raised:
        client.enqueue("fail")
    assert raised.value is boom
    assert client.runs[0].hooks == ("is_failure",)
    with pytest.raises(LookupError):
        client.run_waiting()


def test_a_raised_error_leaves_the_other_tasks_waiting() -> None:
    mux: ServeMux = ServeMux()
    client = InlineClient(mux, raise_errors=True)
    mux.handle("note", lambda task: None)

    @mux.handler("fail")
    def fail(task: RunningTask) -> None:
        client.enqueue("note", task_id=f"child{task.retried}")
        raise LookupError("boom")

    client.enqueue("fail", task_id="f", process_in=60)
    client.enqueue("note", task_id="n", process_in=60)
    with pytest.raises(LookupError, match="boom"):
        client.run_waiting()
    assert {message.id for message in client.waiting} == {"f", "n", "child0"}
    assert len(client.runs) == 1
    with pytest.raises(LookupError, match="boom"):
        client.run_waiting()
    assert {message.id for message in client.waiting} >= {"f", "child1"}


def test_a_task_that_ctrl_c_ends_waits_again() -> None:
    mux: ServeMux = ServeMux()
    client = InlineClient(mux)

    @mux.handler("stop")
    def stop(task: RunningTask) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.enqueue("stop", task_id="s")
    assert [message.id for message in client.waiting] == ["s"]
    assert client.runs == []


CONFLICTS: list[tuple[str, dict[str, Any], bool]] = [
    ("note", {}, False),
    ("note", {"retention": 60}, True),
    ("note", {"process_in": 60}, True),
    ("fail", {}, True),
    ("fail", {"max_retry": 0}, True),
    ("revoke", {"retention": 60}, False),
]


@pytest.mark.parametrize(("type", "options", "conflicts"), CONFLICTS)
def test_an_id_is_taken_for_as_long_as_its_task_is_kept(
    type: str, options: Any, conflicts: bool, client: InlineClient
) -> None:
    client.enqueue(type, task_id="a", **options)
    client.enqueue(type, task_id="a", queue="other")
    again: Callable[[], object] = lambda: client.enqueue("note", task_id="a")  # noqa: E731 - called in one place of two
    if not conflicts:
        again()
        return
    with pytest.raises(TaskIDConflictError):
        again()


@pytest.mark.parametrize(
    ("type", "options", "locks"),
    [
        ("note", {}, False),
        ("note", {"retention": 60}, False),
        ("note", {"process_in": 60}, True),
        ("fail", {}, True),
        ("fail", {"max_retry": 0}, True),
        ("revoke", {}, False),
    ],
)
def test_a_lock_is_held_until_its_task_is_done(type: str, options: Any, locks: bool, client: InlineClient) -> None:
    client.enqueue(type, b"x", unique=60, **options)
    client.enqueue(type, b"other", unique=60)
    if locks:
        with pytest.raises(DuplicateTaskError):
            client.enqueue(type, b"x", unique=60)
    else:
        client.enqueue(type, b"x", unique=60)


def test_bad_input_is_refused_and_nothing_runs(client: InlineClient, ran: list[str]) -> None:
    with pytest.raises(TypeError, match="unknown option 'que'"):
        client.enqueue("note", que="x")  # type: ignore[call-arg]  # refused by mypy, too
    with pytest.raises(ValueError, match="queue must contain"):
        client.enqueue("note", queue=" ")
    assert (ran, client.enqueued, client.runs) == ([], [], [])


# For asyncio


def test_async_handlers_run_on_the_running_loop_and_plain_ones_beside_it() -> None:
    mux = ServeMux()
    seen: list[object] = []

    @mux.handler("async")
    async def on_the_loop(task: RunningTask) -> str:
        await asyncio.sleep(0)
        seen.append((asyncio.get_running_loop(), current_task().id))
        return "async"

    @mux.handler("plain")
    def beside_it(task: RunningTask) -> str:
        seen.append((threading.current_thread() is threading.main_thread(), current_task().id))
        return asyncio.run(answer())  # no loop runs in this thread

    async def answer() -> str:
        return "plain"

    async def produce(client: AsyncClient) -> object:
        async with client as entered:
            await entered.ping()
            await entered.enqueue("async", task_id="a")
            await entered.enqueue("plain", task_id="p")
        return asyncio.get_running_loop()

    client = AsyncInlineClient(mux)
    loop = asyncio.run(produce(client))
    assert seen == [(loop, "a"), (False, "p")]
    assert [run.json() for run in client.runs] == ["async", "plain"]
    assert [info.id for info in assert_enqueued(client, "async", count=1)] == ["a"]


def test_an_async_handler_that_enqueues_does_not_wait_for_itself() -> None:
    mux = ServeMux()
    client = AsyncInlineClient(mux)
    steps: list[str] = []

    @mux.handler("chain")
    async def chain(task: RunningTask) -> None:
        steps.append(f"{task.json()} begins")
        if task.json():
            await client.enqueue("chain", task.json() - 1)
        steps.append(f"{task.json()} ends")

    asyncio.run(client.enqueue("chain", 2))
    assert steps == ["2 begins", "2 ends", "1 begins", "1 ends", "0 begins", "0 ends"]


def test_an_async_client_has_results_of_many_what_waits_and_errors() -> None:
    mux = ServeMux()

    @mux.handler("fail")
    async def fail(task: RunningTask) -> None:
        if not task.retried:
            raise LookupError("boom")

    async def produce() -> None:
        client = AsyncInlineClient(mux)
        results = await client.enqueue_many([Task("fail", task_id="f"), Task("fail", task_id="f")], max_retry=1)
        assert isinstance(results, EnqueueResults)
        assert [type(error) for _, error in results.errors()] == [TaskIDConflictError]
        assert [message.id for message in client.waiting] == ["f"]
        assert [run.outcome for run in await client.run_waiting()] == [RunOutcome.DONE]
        with pytest.raises(LookupError, match="boom"):
            await AsyncInlineClient(mux, raise_errors=True).enqueue("fail")

    asyncio.run(produce())


def test_a_canceled_caller_ends_its_handler() -> None:
    mux = ServeMux()
    begun = asyncio.Event()

    @mux.handler("hang")
    async def hang(task: RunningTask) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def produce() -> None:
        client = AsyncInlineClient(mux)
        calling = asyncio.ensure_future(client.enqueue("hang"))
        await begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert client.runs == []
        assert [message.type for message in client.waiting] == ["hang"]
        begun.clear()
        again = asyncio.ensure_future(client.enqueue("hang"))  # nothing is left running
        await begun.wait()
        again.cancel()

    asyncio.run(produce())


def test_assert_enqueued_does_not_ask_an_async_client(url: str) -> None:
    with pytest.raises(TypeError, match="give it the Redis URL"):
        assert_enqueued(AsyncClient(url), "t")  # type: ignore[arg-type]  # what is tested


def test_a_task_in_a_lane_runs_at_once_and_one_that_was_refused_waits() -> None:
    mux: ServeMux = ServeMux()

    @mux.handler("asks")
    def asks(task: RunningTask) -> str:
        if task.payload == b"refused":
            raise RateLimited(after=30)
        return "answer"

    client = InlineClient(mux)
    assert client.enqueue("asks", b"", lane="acme").state is TaskState.AGGREGATING
    assert client.runs[0].json() == "answer"
    client.enqueue("asks", b"", lane="acme", process_in=60)
    client.enqueue("asks", b"refused", lane="acme", max_retry=0)
    assert [run.outcome for run in client.runs] == [RunOutcome.DONE, RunOutcome.RETRY]
    assert (client.runs[1].retry_in, client.runs[1].is_failure) == (30.0, False)
    assert len(client.waiting) == 2
    assert [run.outcome for run in client.run_waiting()] == [RunOutcome.DONE, RunOutcome.RETRY]
