"""Long tasks: the flag to stop, checkpoints and the state that comes back, loops that resume."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from fastq import Snooze, Task, TaskEndedError
from fastq.checkpoint import MAX_CHECKPOINT_BYTES, with_checkpoint
from fastq.enqueueing.producer import compose
from fastq.running import RunningTask
from fastq.wire.codec import TaskMessage, decode_task_message, encode_task_message
from fastq.wire.messages import CHECKPOINT_HEADER
from tests.worker.harness import FakeContext, running


class Pool(FakeContext):
    """A pool that has saved a checkpoint at the second look, and stops the server after so many of them."""

    def __init__(self, stops_after: int = -1) -> None:
        super().__init__()
        self.saved: list[bytes] = []
        self.looks = 0
        self.stops_after = stops_after

    @property
    def is_stopping(self) -> bool:  # type: ignore[override]  # a variable there
        return len(self.saved) == self.stops_after

    def save(self, data: bytes) -> int:
        self.saved.append(data)
        self.looks = 0
        return len(self.saved)

    def is_saved(self, number: int) -> bool:
        assert number == len(self.saved)
        self.looks += 1
        return self.looks > 1


def resumed(state: str, pool: Pool | None = None) -> RunningTask:
    return running(pool or Pool(), headers={CHECKPOINT_HEADER: state})


def test_a_checkpoint_is_a_header_beside_the_others() -> None:
    message = TaskMessage("t", b"payload", "id", headers={"trace": "1"})
    first = with_checkpoint(encode_task_message(message), b'{"page":1}')
    second = decode_task_message(with_checkpoint(first, '"ä"'.encode()))
    assert second == message.replace(headers={"trace": "1", CHECKPOINT_HEADER: '"ä"'})


def test_a_state_is_saved_when_checkpoint_returns_and_comes_back_in_the_next_run() -> None:
    pool = Pool()
    task = running(pool)
    assert task.resume() is None
    task.checkpoint({"page": 7})
    assert (pool.saved, pool.looks) == ([b'{"page":7}'], 2)
    asyncio.run(task.acheckpoint([1]))
    assert (pool.saved[1:], pool.looks) == ([b"[1]"], 2)
    assert resumed('{"page":7}').resume() == {"page": 7}


@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        ("x" * MAX_CHECKPOINT_BYTES, ValueError, f"checkpoint of {MAX_CHECKPOINT_BYTES + 2} bytes is over the limit"),
        ({"a": {1, 2}}, TypeError, r"\$\.a"),
        (b"bytes", TypeError, "checkpoint"),
        (float("nan"), ValueError, "checkpoint"),
    ],
)
def test_a_state_that_cannot_be_kept_is_refused(state: Any, kind: type[Exception], text: str) -> None:
    pool = Pool()
    with pytest.raises(kind, match=text):
        running(pool).checkpoint(state)
    assert pool.saved == []


def test_checkpoint_does_not_block_an_event_loop() -> None:
    async def handler() -> None:
        running(Pool()).checkpoint(1)

    with pytest.raises(RuntimeError, match=r"^checkpoint\(\) would block the event loop; use await acheckpoint\(\)"):
        asyncio.run(handler())


def test_a_checkpoint_that_comes_too_late_names_its_task() -> None:
    class Ended(Pool):
        def is_saved(self, number: int) -> bool:
            raise TaskEndedError("it has ended")

    with pytest.raises(TaskEndedError, match=r"^no checkpoint can be saved for task x of 'low': it has ended$"):
        running(Ended(), id="x", queue="low").checkpoint(1)


def test_stopping_is_a_flag_that_can_be_waited_for() -> None:
    pool = Pool(stops_after=1)
    task = running(pool)
    assert not task.stopping
    assert not task.stopping.wait(0.001)

    async def stop() -> None:
        waiting = asyncio.ensure_future(task.stopping)
        await asyncio.sleep(0)
        assert not waiting.done()
        pool.saved.append(b"")
        await waiting
        with pytest.raises(RuntimeError, match=r"use await task\.stopping$"):
            task.stopping.wait(1)

    asyncio.run(stop())
    assert task.stopping
    assert task.stopping.wait(600)


def test_a_loop_saves_its_position_and_begins_behind_it() -> None:
    pool = Pool()
    assert list(running(pool).iterate("abcd", every=0)) == ["a", "b", "c", "d"]
    assert pool.saved == [b"1", b"2", b"3"]  # the end of the last one is the end of the task
    assert list(resumed("3").iterate("abcd")) == ["d"]
    assert list(resumed("4").iterate("abcd")) == []


def test_a_loop_saves_as_often_as_it_is_asked_to() -> None:
    pool = Pool()
    assert list(running(pool).iterate(range(1000), every=timedelta(hours=1))) == list(range(1000))
    assert pool.saved == []


def test_a_loop_ends_with_its_position_saved_once_the_server_is_about_to_stop() -> None:
    pool = Pool(stops_after=0)
    with pytest.raises(Snooze) as stop:
        next(iter(resumed("2", pool).iterate("abcd")))
    assert (stop.value.after_s, pool.saved) == (0.0, [])

    class Stops(Pool):
        is_stopping = False

    pool = Stops()
    loop = iter(running(pool).iterate("abcd", every=3600))
    assert [next(loop), next(loop)] == ["a", "b"]
    pool.is_stopping = True
    with pytest.raises(Snooze, match=r"^its worker process stops; 2 items are done$"):
        next(loop)
    assert pool.saved == [b"2"]


def test_a_loop_that_is_told_to_stop_after_its_look_goes_on_until_its_position_is_saved() -> None:
    looks = iter((False, False))

    class Late(Pool):
        @property
        def is_stopping(self) -> bool:  # type: ignore[override]  # a variable there
            return next(looks, True)

    pool = Late()
    loop = iter(running(pool).iterate("abcd", every=3600))
    assert [next(loop), next(loop)] == ["a", "b"]
    with pytest.raises(Snooze, match="2 items are done"):
        next(loop)
    assert pool.saved == [b"2"]


def test_coroutines_loop_over_items_of_both_kinds() -> None:
    async def letters() -> AsyncIterator[str]:
        for letter in "abcd":
            yield letter

    async def handler(items: Any) -> list[str]:
        seen: list[str] = []
        with suppress(Snooze):
            async for item in resumed("1", Pool(stops_after=2)).iterate(items, every=0):
                seen.append(item)
        return seen

    assert asyncio.run(handler(letters())) == ["b", "c"]
    assert asyncio.run(handler("abcd")) == ["b", "c"]
    with pytest.raises(TypeError, match="need async for"):
        next(iter(running(Pool()).iterate(letters())))


def test_a_run_has_one_loop_and_no_checkpoint_beside_it() -> None:
    task = running(Pool(), id="x")
    task.iterate([1])
    for use in (lambda: task.iterate([1]), lambda: task.checkpoint(1), lambda: asyncio.run(task.acheckpoint(1))):
        with pytest.raises(RuntimeError, match=r"^the checkpoint of task x is the position of its iterate\(\)$"):
            use()
    with pytest.raises(TypeError, match=r"^the checkpoint of task id-1 is \{'page': 7\}, not a position of iterate"):
        resumed('{"page":7}').iterate([1])
    with pytest.raises(ValueError, match="every"):
        running(Pool()).iterate([1], every=-1)


def test_the_checkpoint_of_a_task_is_not_passed_on_with_its_headers() -> None:
    task = running(headers={CHECKPOINT_HEADER: "7", "trace": "1"})
    for copy in (Task("next", headers=task.headers), task.replace(b"")):
        batch, _ = compose(copy, {}, time.time_ns())
        assert decode_task_message(batch.tasks[0].message).headers == {"trace": "1"}
