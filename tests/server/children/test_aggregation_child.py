"""The aggregation child: the app's code runs there, and whatever becomes of it the next group is aggregated."""

import asyncio
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from fastq import ServerConfig, Task
from fastq.running import GroupedTask
from fastq.server.children.aggregation_child import AggregationChild, AggregationFailure
from fastq.wire.codec import decode_task_message
from fastq.worker.shared.requests import Combined, Unreadable
from tests.pool.harness import run
from tests.processes import children
from tests.server.harness import logged
from tests.waiting import PATIENCE_S, until
from tests.worker.harness import encoded

HERE = "tests.server.children.test_aggregation_child"


def aggregate(group: str, tasks: Sequence[GroupedTask]) -> Any:
    """Do what the group is named for."""
    if group == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if group in ("crash", "hang"):
        threading.Event().wait()
    if group == "slow":
        threading.Event().wait(0.1)
    if group == "raise":
        raise LookupError("nothing there")
    return Task(str(os.getpid()), b"".join(task.payload for task in tasks))


def child(name: str = f"{HERE}:aggregate") -> AggregationChild:
    return AggregationChild(ServerConfig(group_aggregator=name), 120.0)


async def ok(asked: AggregationChild) -> int:
    """Aggregate two tasks; return the process that did it."""
    answer = await asked.combine("q", "ok", [encoded(payload=b"1"), encoded(payload=b"2")])
    assert isinstance(answer, Combined), answer
    message = decode_task_message(answer.task.message)
    assert message.payload == b"12"
    return int(message.type)


async def why(asked: AggregationChild, group: str) -> str:
    answer = await asked.combine("q", group, [encoded()])
    assert isinstance(answer, AggregationFailure), answer
    return answer.why


def test_the_aggregator_runs_in_one_process_that_is_not_this_one() -> None:
    async def test() -> None:
        asked = child()
        assert await asked.prepare()
        pids = {await ok(asked) for _ in range(3)}
        assert len(pids) == 1
        assert os.getpid() not in pids
        assert isinstance(await asked.combine("q", "g", [b"\xff"]), Unreadable)
        await asked.stop()
        await asked.stop()

    run(test())


def test_a_set_of_five_thousand_goes_there_and_back() -> None:
    async def test() -> None:
        asked = child()
        answer = await asked.combine("q", "ok", [encoded(payload=bytes(1000))] * 5000)
        assert isinstance(answer, Combined)
        assert len(answer.task.message) > 5_000_000
        await asked.stop()

    run(test())


def test_sets_that_wait_behind_slow_ones_are_aggregated_too() -> None:
    async def test() -> None:
        asked = child()
        answers = await asyncio.gather(*(asked.combine("q", "slow", [encoded()]) for _ in range(8)))
        assert {type(answer) for answer in answers} == {Combined}
        await asked.stop()

    run(test())


def test_the_patience_with_a_call_does_not_begin_while_another_one_runs() -> None:
    async def test() -> None:
        asked = child()
        await ok(asked)
        first, *others = [asyncio.create_task(why(asked, "hang")) for _ in range(3)]
        await until(lambda: asked._child._answers)
        for _ in range(20):
            await asyncio.sleep(0)
            assert len(asked._child._answers) == 1
        await asked.stop()
        assert {await asking for asking in (first, *others)} == {"the server stops"}

    run(test())


@pytest.mark.parametrize(
    ("group", "says"),
    [
        ("raise", "LookupError: nothing there (tests/server/children/test_aggregation_child.py:"),
        ("crash", "died with signal SIGSEGV"),
        ("hang", "it took longer than 1 s and was ended"),
    ],
)
def test_what_goes_wrong_is_said_and_the_next_group_is_aggregated(
    group: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "fastq.pool.main.supervisor._REPORT_WAIT_S", PATIENCE_S
    )  # for the preloader's word on its death

    async def test() -> None:
        quick, patient = child(), child()
        quick._limit_s = 1.0
        first = quick if group == "hang" else patient
        assert says in await why(first, group)
        await ok(patient)
        for asked in (quick, patient):
            await asked.stop()

    run(test())


def test_a_child_that_is_stopped_answers_that_the_server_stops() -> None:
    async def test() -> None:
        asked = child()
        await ok(asked)
        asking = asyncio.create_task(why(asked, "hang"))
        while not asked._child._answers:
            await asyncio.sleep(0)
        await asked.stop()
        assert await asking == "the server stops"

    run(test())


def test_a_child_that_was_stopped_is_not_started_by_who_asks_late(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        before = children()
        asked = child()
        await asked.stop()
        assert await why(asked, "ok") == "the server stops"
        assert not await asked.prepare()
        assert not children() - before

    run(test())
    assert logged(caplog) == []


def test_an_aggregator_that_cannot_be_loaded_is_said_each_time(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        asked = child("tests.server.nosuch:aggregate")
        assert not await asked.prepare()
        for _ in range(2):
            assert await why(asked, "ok") == "it gave no answer"
        await asked.stop()

    run(test())
    lines = logged(caplog)
    assert len(lines) == 3
    assert all(line.startswith("the group aggregator cannot be run: ") and "nosuch" in line for line in lines)
