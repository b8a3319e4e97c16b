"""Semaphore: a token for each handler that runs, given back however it ends."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from fastq import App, Hooks, Semaphore, SemaphoreFullError, ServeMux, TaskCanceled, TaskTimeout
from fastq.running import CURRENT, RunningTask
from fastq.testing import RunOutcome, run_task
from tests.manual_clock import ManualClock
from tests.redis_servers import redis_server
from tests.waiting import PATIENCE_S
from tests.worker.harness import FakeContext, running

KEY = "asynq:sema:api"


def a_task(task_id: str, seconds: float = 60.0) -> RunningTask:
    """Make a task whose time is up in so many seconds."""
    return running(FakeContext(deadline_ns=time.monotonic_ns() + int(seconds * 1e9)), id=task_id)


@contextmanager
def inside(task: RunningTask) -> Iterator[None]:
    """Set the current task, as inside its handler."""
    token = CURRENT.set(task)
    try:
        yield
    finally:
        CURRENT.reset(token)


@pytest.fixture
def semaphore(url: str) -> Iterator[Semaphore]:
    made = Semaphore("api", 2, url)
    yield made
    made.close()
    made.close()


def holders(db: Any) -> dict[str, float]:
    return {member.decode(): score for member, score in db.zrange(KEY, 0, -1, withscores=True)}


# By hand ----------------------------------------------------------------------------------------------------------


def test_a_token_is_the_tasks_and_ends_with_its_deadline(semaphore: Semaphore, db: Redis) -> None:
    before_s = time.time()
    with inside(a_task("a", 100)):
        assert semaphore.acquire()
    assert semaphore.acquire(a_task("b"))
    assert not semaphore.acquire(a_task("c"))
    assert semaphore.held() == 2
    found = holders(db)
    assert found.keys() == {"a", "b"}
    assert before_s + 99 <= found["a"] <= time.time() + 100
    assert found["a"] == int(found["a"])
    assert [semaphore.release(a_task("a")), semaphore.release(a_task("a"))] == [True, False]


def test_a_token_of_one_that_died_is_free_when_its_time_is_up(semaphore: Semaphore, db: Any) -> None:
    assert semaphore.acquire(a_task("dead-1"))
    assert semaphore.acquire(a_task("dead-2"))
    db.zadd(KEY, {"dead-1": int(time.time()) - 2})
    assert semaphore.held() == 1
    assert semaphore.acquire(a_task("next"))
    assert holders(db).keys() == {"dead-2", "next"}


def test_outside_of_a_handler_there_is_no_task_to_hold_it(semaphore: Semaphore) -> None:
    with pytest.raises(LookupError, match="no task is running here"):
        semaphore.acquire()
    with pytest.raises(LookupError, match="no task is running here"):
        semaphore.release()


def test_a_task_without_a_deadline_is_refused(semaphore: Semaphore, db: Redis) -> None:
    with pytest.raises(ValueError, match="task id-1 has neither timeout nor deadline"):
        semaphore.acquire(running())
    assert holders(db) == {}


@pytest.mark.parametrize(
    ("scope", "tokens", "kind", "says"),
    [
        ("", 1, ValueError, "scope must contain .* not blank: ''"),
        (" \t", 1, ValueError, "scope must contain"),
        (None, 1, TypeError, "scope must be a str"),
        ("s", 0, ValueError, "max_tokens must be at least 1: 0"),
        ("s", -1, ValueError, "max_tokens must be at least 1: -1"),
        ("s", True, TypeError, "max_tokens must be an int, not bool: True"),
        ("s", 1.5, TypeError, "max_tokens must be an int, not float"),
        ("s", "1", TypeError, "max_tokens must be an int, not str"),
    ],
)
def test_a_bad_scope_or_number_is_refused(scope: Any, tokens: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        Semaphore(scope, tokens, "redis://nowhere")


# Around handlers --------------------------------------------------------------------------------------------------


def test_with_holds_a_token_however_the_block_ends(semaphore: Semaphore, db: Redis) -> None:
    with inside(a_task("a")):
        with semaphore as same:
            assert same is semaphore
            assert holders(db).keys() == {"a"}
        assert holders(db) == {}
        with pytest.raises(KeyError), semaphore:
            raise KeyError
    assert holders(db) == {}


@pytest.mark.parametrize("kind", [TaskCanceled, TaskTimeout, KeyboardInterrupt])
def test_a_task_that_is_ended_while_it_asks_keeps_no_token(
    semaphore: Semaphore, db: Redis, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """A signal raises in it, and Redis has given the token by then."""
    drive = semaphore._broker.drive

    def ended(flow: Any) -> None:
        assert drive(flow)
        assert holders(db).keys() == {"a"}
        raise kind("it ends")

    monkeypatch.setattr(semaphore._broker, "drive", ended)
    with inside(a_task("a")):
        with pytest.raises(kind, match="it ends"), semaphore:
            pytest.fail("it was ended before")
        with pytest.raises(kind, match="it ends"):
            semaphore.acquire()
    assert holders(db) == {}


def test_a_task_that_is_ended_while_it_gives_its_token_back_keeps_none(
    semaphore: Semaphore, db: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = semaphore._broker.run
    ends = [TaskTimeout("it ends")]

    def ended(operation: Any) -> Any:
        if ends:
            raise ends.pop()
        return run(operation)

    with inside(a_task("a")), pytest.raises(TaskTimeout, match="it ends"), semaphore:
        monkeypatch.setattr(semaphore._broker, "run", ended)
    assert holders(db) == {}


def test_a_full_semaphore_is_an_error_that_says_which(semaphore: Semaphore, db: Redis) -> None:
    for other in "xy":
        semaphore.acquire(a_task(other))
    full = r"all 2 tokens of semaphore 'api' are held by other tasks"
    with inside(a_task("a")), pytest.raises(SemaphoreFullError, match=full) as raised, semaphore:
        pytest.fail("there is no token")
    assert (raised.value.scope, raised.value.max_tokens) == ("api", 2)
    assert holders(db).keys() == {"x", "y"}


def test_a_task_without_a_token_runs_again_and_no_attempt_is_counted(semaphore: Semaphore, db: Redis) -> None:
    app = App()

    @app.task("limited", max_retry=0, retry_on=ConnectionError)
    def limited() -> None:
        with semaphore:
            pytest.fail("there is no token")

    for other in "xy":
        semaphore.acquire(a_task(other))
    run = run_task(app, limited.task(), hooks=Hooks(retry_delay=lambda *_: 1000, is_failure=lambda _: True))
    assert (run.outcome, run.is_failure, run.hooks) == (RunOutcome.RETRY, False, ())
    assert run.retry_in is not None
    assert 1 <= run.retry_in <= 3


def test_tasks_ask_less_often_the_longer_no_token_was_free(semaphore: Semaphore, db: Redis) -> None:
    clock = semaphore._clock = ManualClock(time.time())

    def ask() -> None:
        with inside(a_task("a")), semaphore:
            """It holds one."""

    def delay_s() -> float:
        with pytest.raises(SemaphoreFullError) as raised:
            ask()
        return raised.value.after_s

    def delays_s(after_s: int) -> list[float]:
        for _ in range(after_s):
            clock.advance(1)
            delay_s()
        return [delay_s() for _ in range(50)]

    for other in "xy":
        semaphore.acquire(a_task(other, 1e6))
    first = delays_s(0)
    assert all(1 <= delay <= 3 for delay in first)
    assert len({*first}) > 1
    assert all(10 <= delay < 31 for delay in delays_s(80))
    assert all(60 <= delay <= 180 for delay in delays_s(720))
    semaphore.release(a_task("x"))
    ask()
    semaphore.acquire(a_task("x", 1e6))
    assert delay_s() <= 3


def test_a_time_in_which_no_task_asked_is_none_without_a_free_token(semaphore: Semaphore, db: Redis) -> None:
    clock = semaphore._clock = ManualClock(time.time())
    for other in "xy":
        semaphore.acquire(a_task(other, 1e6))
    for _ in range(2):
        with inside(a_task("a")), pytest.raises(SemaphoreFullError) as raised, semaphore:
            """It holds one."""
        assert raised.value.after_s <= 3
        clock.advance(3600)


def test_async_with_does_the_same_on_a_loop(semaphore: Semaphore, db: Redis) -> None:
    async def handler(task: RunningTask) -> None:
        CURRENT.set(task)
        async with semaphore:
            assert task.id in holders(db)
            raise KeyError(task.id)

    async def main() -> list[BaseException | None]:
        return await asyncio.gather(*(handler(a_task(name)) for name in "ab"), return_exceptions=True)

    assert [repr(error) for error in asyncio.run(main())] == ["KeyError('a')", "KeyError('b')"]
    assert holders(db) == {}


@pytest.mark.parametrize("times", [1, 2])
def test_a_coroutine_that_is_cancelled_while_it_asks_keeps_no_token(
    semaphore: Semaphore, db: Redis, times: int
) -> None:
    async def handler(asked: threading.Event, may_ask: threading.Event) -> None:
        CURRENT.set(a_task("a"))
        acquire = semaphore.acquire

        def slowly(task: RunningTask | None = None) -> bool:
            asked.set()
            may_ask.wait()
            return acquire(task)

        semaphore.acquire = slowly  # type: ignore[method-assign]  # what it does, and when
        async with semaphore:
            pytest.fail("it was cancelled before")

    async def main() -> None:
        asked, may_ask = threading.Event(), threading.Event()
        running = asyncio.create_task(handler(asked, may_ask))
        await asyncio.to_thread(asked.wait)
        for _ in range(times):
            running.cancel()
            await asyncio.sleep(0)
        may_ask.set()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert holders(db) == {}


def test_as_middleware_it_is_around_plain_and_async_handlers(semaphore: Semaphore, db: Redis) -> None:
    mux = ServeMux()
    mux.use(semaphore.middleware)

    @mux.handler("plain")
    def plain(task: RunningTask) -> set[str]:
        return set(holders(db))

    @mux.handler("async")
    async def coroutine(task: RunningTask) -> set[str]:
        return set(holders(db))

    async def main() -> object:
        with inside(a_task("b")):
            return await mux.dispatch("async")(a_task("b"))  # type: ignore[misc]  # it is a coroutine's

    with inside(a_task("a")):
        assert mux.dispatch("plain")(a_task("a")) == {"a"}
    assert asyncio.run(main()) == {"b"}
    assert holders(db) == {}
    assert mux.patterns() == {"plain": False, "async": True}


def test_as_decorator_it_is_around_one_handler_and_keeps_its_name(semaphore: Semaphore, db: Redis) -> None:
    @semaphore.middleware
    def limited(task: RunningTask) -> str:
        """Do it."""
        return "done"

    assert (limited.__name__, limited.__doc__) == ("limited", "Do it.")
    with inside(a_task("a")):
        assert limited(a_task("a")) == "done"


def test_there_are_never_more_holders_than_tokens(semaphore: Semaphore, db: Redis) -> None:
    changed = threading.Condition()
    inside_now = most = refused = 0

    def work(number: int) -> None:
        nonlocal inside_now, most, refused
        with inside(a_task(f"t{number}", 600)):
            try:
                with semaphore:
                    with changed:
                        inside_now += 1
                        most = max(most, inside_now)
                        changed.notify_all()
                        changed.wait_for(lambda: most >= 2 and refused, PATIENCE_S)
                    holders(db)
                    with changed:
                        inside_now -= 1
            except SemaphoreFullError:
                with changed:
                    refused += 1
                    changed.notify_all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(400)))
    assert most == 2
    assert refused
    assert holders(db) == {}


def test_a_redis_that_goes_away_meanwhile_does_not_fail_the_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with redis_server() as server:
        semaphore = Semaphore("api", 1, server.url)
        with inside(a_task("a")), semaphore:
            server.process.kill()
            server.process.wait()
        semaphore.close()
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "could not release a token of semaphore 'api'; it stays taken until its task's deadline: "
    )
