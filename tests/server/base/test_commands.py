"""The command connection: who asks at the same time shares a pipeline, and nobody else's trouble."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fastq.broker.operation import Operation
from fastq.errors import BrokerConnectionError, BrokerError, BrokerTimeoutError
from fastq.server.base.commands import Commands
from tests.broker.harness import run


def ask(word: str) -> Operation[str]:
    return Operation(word, (), ())


class Pipelines:
    """A fake broker: its pipelines end when the test says so; ``answer`` makes the answers from names."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: BaseException | None = None

    def begin(self, operations: Sequence[Operation[Any]], *how: Any) -> bool:
        return False

    async def run_many(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        self.sent.append([operation.name for operation in operations])
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return [self.answer(operation.name) for operation in operations]

    def answer(self, name: str) -> Any:
        return BrokerConnectionError("cut", operation=name) if name.startswith("bad") else f"{name}!"


def commands_on(pipelines: Pipelines) -> Commands:
    return Commands(pipelines)  # type: ignore[arg-type]  # all that Commands uses of a broker


async def ask_one_by_one(commands: Commands, *words: str) -> list[asyncio.Task[list[Any]]]:
    """Ask for so many pipelines."""
    asking = []
    for word in words:
        asking.append(asyncio.create_task(commands.run_many([ask(word)])))
        await begun()
    return asking


async def begun() -> None:
    """Let what was asked for be sent."""
    for _ in range(3):  # the caller's task, the start of the pipeline, and its task
        await asyncio.sleep(0)


def test_what_is_asked_while_two_pipelines_are_under_way_goes_out_together_in_the_next() -> None:
    async def test() -> None:
        pipelines = Pipelines()
        commands = commands_on(pipelines)
        pipelines.open.clear()
        first, second = await ask_one_by_one(commands, "a1", "a2")
        more = [asyncio.create_task(commands.run_many([ask(x), ask(f"{x}{x}")])) for x in "bcd"]
        await asyncio.sleep(0)
        pipelines.open.set()
        assert (await first, await second) == (["a1!"], ["a2!"])
        assert await asyncio.gather(*more) == [["b!", "bb!"], ["c!", "cc!"], ["d!", "dd!"]]
        assert pipelines.sent == [["a1"], ["a2"], ["b", "bb", "c", "cc", "d", "dd"]]

    run(test)


def test_what_joins_goes_out_with_what_was_asked_for_just_before_if_anything_was() -> None:
    async def test() -> None:
        pipelines = Pipelines()
        commands = commands_on(pipelines)
        asked = [commands.begin([ask("a")]), commands.begin([ask("b")], joins=True)]
        assert await asyncio.gather(*asked) == [["a!"], ["b!"]]
        pipelines.open.clear()
        (first,) = await ask_one_by_one(commands, "c")
        alone = commands.begin([ask("d")], joins=True)
        await begun()
        assert pipelines.sent == [["a", "b"], ["c"], ["d"]], "what is on its way already cannot be joined"
        pipelines.open.set()
        assert (await first, await alone) == (["c!"], ["d!"])

    run(test)


def test_what_may_join_and_finds_nobody_goes_out_at_once() -> None:
    async def test() -> None:
        pipelines = Pipelines()
        commands = commands_on(pipelines)
        answer = commands.begin([ask("a")], joins=True)
        assert commands._only._under_way == 1, "in this very turn of the loop"
        assert await answer == ["a!"]

    run(test)


def test_what_two_ask_at_once_goes_out_in_a_pipeline_each() -> None:
    """In one, both would have their answers and ask again at once, and Redis would have nothing to do meanwhile."""

    async def test() -> None:
        pipelines = Pipelines()
        commands = commands_on(pipelines)
        for words in ("ab", "cde"):
            await asyncio.gather(*(commands.run(ask(word)) for word in words))
        assert pipelines.sent == [["a"], ["b"], ["c", "d"], ["e"]]

    run(test)


@pytest.mark.parametrize("gone", range(3))
def test_one_of_three_who_ask_at_once_may_be_cancelled(gone: int) -> None:
    async def test() -> None:
        commands = commands_on(Pipelines())
        answers = [commands.begin([ask(word)]) for word in "abc"]
        answers.pop(gone).cancel()
        assert [await answer for answer in answers] == [[f"{word}!"] for word in "abc" if word != "abc"[gone]]

    run(test)


def test_an_error_is_its_callers_alone() -> None:
    async def test() -> None:
        commands = commands_on(Pipelines())
        good, bad, many = await asyncio.gather(
            commands.run(ask("a")),
            commands.run(ask("bad")),
            commands.run_many([ask("b"), ask("bad"), ask("c")]),
            return_exceptions=True,
        )
        assert good == "a!"
        assert isinstance(bad, BrokerConnectionError)
        assert isinstance(many, list)
        assert [type(result) for result in many] == [str, BrokerConnectionError, str]

    run(test)


def test_a_caller_that_was_cancelled_is_passed_by() -> None:
    async def test() -> None:
        pipelines = Pipelines()
        commands = commands_on(pipelines)
        pipelines.open.clear()
        gone, here = (asyncio.create_task(commands.run(ask(x))) for x in "ab")
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        pipelines.open.set()
        assert await here == "b!"
        with pytest.raises(asyncio.CancelledError):
            await gone

    run(test)


def test_nothing_to_ask_is_not_sent() -> None:
    async def test() -> None:
        pipelines = Pipelines()
        assert await commands_on(pipelines).run_many([]) == []

    run(test)


@pytest.mark.parametrize("error", [RuntimeError("a defect"), ValueError("a reply that nobody understands")])
def test_a_defect_in_a_pipeline_is_an_error_for_each_operation_of_which_nothing_is_known(error: Exception) -> None:
    # Raised to the caller it would lose what he holds: the acker its results, the fetcher its dequeue.
    async def test() -> None:
        pipelines = Pipelines()
        commands = commands_on(pipelines)
        pipelines.error = error
        results = await commands.run_many([ask("a"), ask("b")])
        assert all(isinstance(result, BrokerError) and result.maybe_applied for result in results)
        assert str(error) in str(results[0])
        with pytest.raises(BrokerError):
            await commands.run(ask("c"))
        pipelines.error = None
        assert await commands.run(ask("d")) == "d!"

    run(test)


def test_a_pipeline_that_is_cancelled_with_its_loop_answers_all_who_wait() -> None:
    async def test() -> None:
        pipelines = Pipelines()
        commands = commands_on(pipelines)
        pipelines.open.clear()
        under_way = await ask_one_by_one(commands, "a1", "a2")
        waiting = asyncio.create_task(commands.run_many([ask("b"), ask("c")]))
        await asyncio.sleep(0)
        senders = [task for task in asyncio.all_tasks() if task.get_name() == "fastq commands"]
        assert len(senders) == 2
        for sender in senders:
            sender.cancel()
        results = [result for one in (*under_way, waiting) for result in await one]
        assert [type(result) for result in results] == [BrokerError] * 4

    run(test)


def test_a_pipeline_that_hangs_is_given_up_and_the_next_one_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.server.base.commands.LIMIT_S", 0.05)

    async def test() -> None:
        pipelines = Pipelines()
        commands = commands_on(pipelines)
        pipelines.open.clear()
        hanging = await ask_one_by_one(commands, "a1", "a2", "late")
        for (error,) in await asyncio.gather(*hanging[:2]):
            assert isinstance(error, BrokerTimeoutError)
            assert error.maybe_applied
        pipelines.open.set()
        assert await commands.run(ask("b")) == "b!"
        await asyncio.gather(*hanging)

    run(test)


def test_who_asks_again_at_once_is_never_left_waiting() -> None:
    """A sender that has just ended takes nothing more, and must not count as one."""

    async def test() -> None:
        commands = commands_on(Pipelines())

        async def ask_on_and_on(name: str) -> None:
            for _ in range(50):
                await commands.run(ask(name))

        await asyncio.gather(*(ask_on_and_on(name) for name in "abcdefgh"))

    run(test)


def test_what_a_cancelled_caller_asked_for_is_not_sent_any_more() -> None:
    async def test() -> None:
        pipelines = Pipelines()
        commands = commands_on(pipelines)
        pipelines.open.clear()
        under_way = await ask_one_by_one(commands, "a1", "a2")
        gone, here = (asyncio.create_task(commands.run(ask(word))) for word in "bc")
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        pipelines.open.set()
        assert await here == "c!"
        await asyncio.gather(*under_way)
        assert pipelines.sent == [["a1"], ["a2"], ["c"]]

    run(test)
