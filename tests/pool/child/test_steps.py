import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from fastq.pool.child.steps import Stage
from fastq.pool.shared import layout
from fastq.pool.shared.ring import Memory


class Loop:
    """A stage whose memory can be looked at, and a loop whose tasks it makes."""

    def __init__(self) -> None:
        self.memory = bytearray(layout.PAGE)
        self.stage = Stage(Memory(self.memory))

    def in_step(self) -> int:
        return int.from_bytes(self.memory[layout.STEP_AT : layout.STEP_AT + 8], "little")

    def run(self, coroutine: Coroutine[Any, Any, Any], seq: int = 7) -> Any:
        async def main() -> Any:
            asyncio.get_running_loop().set_task_factory(self.stage.make_task)
            return await asyncio.Task(self.stage.follow(seq, coroutine))

        result = asyncio.run(main())
        assert self.in_step() == 0
        return result


def test_a_task_is_in_its_steps_and_between_them_is_none() -> None:
    loop = Loop()
    seen = []

    async def handler() -> None:
        seen.append(loop.in_step())
        asyncio.get_running_loop().call_soon(lambda: seen.append(loop.in_step()))
        await asyncio.sleep(0)
        seen.append(loop.in_step())

    loop.run(handler())
    assert seen == [7, 0, 7]


def test_what_a_task_starts_is_its_own_and_what_others_start_is_theirs() -> None:
    loop = Loop()
    seen = []

    async def part(name: str) -> None:
        await asyncio.sleep(0)
        seen.append((name, loop.in_step()))

    async def handler() -> None:
        await asyncio.gather(part("gathered"), asyncio.wait_for(part("waited for"), 60))
        made = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: made.set_result(asyncio.ensure_future(part("a callback's"))))
        await (await made)

    loop.run(handler())
    assert sorted(seen) == [("a callback's", 0), ("gathered", 7), ("waited for", 7)]


@pytest.mark.parametrize("value", [None, 5, (1, 2), ValueError("a value"), StopIteration(3)])
def test_a_coroutines_value_passes(value: object) -> None:
    async def part() -> object:
        await asyncio.sleep(0)
        return value

    async def handler() -> object:
        return await asyncio.create_task(part())

    assert Loop().run(handler()) is value


def test_errors_pass_in_both_directions() -> None:
    loop = Loop()
    seen = []

    async def part() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(loop.in_step())
            raise KeyError("of the part") from None

    async def handler() -> None:
        task = asyncio.create_task(part())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(KeyError, match="of the part"):
            await task

    loop.run(handler())
    assert seen == [7]


def test_a_step_can_be_driven_and_looked_into_as_any_coroutine() -> None:
    async def handler() -> str:
        await asyncio.sleep(0)
        return "end"

    coroutine = handler()
    step = Loop().stage.follow(7, coroutine)
    assert asyncio.iscoroutine(step)
    assert step.send(None) is None
    assert inspect.getcoroutinestate(step) == inspect.CORO_SUSPENDED
    with pytest.raises(StopIteration) as end:
        next(step)
    assert end.value.value == "end"

    step = Loop().stage.follow(7, coroutine := handler())
    step.send(None)
    with pytest.raises(ZeroDivisionError):
        step.throw(ZeroDivisionError())
    step = Loop().stage.follow(7, coroutine := handler())
    step.close()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
