"""The spare child: whoever is cancelled or stops it at whatever moment, no process is left."""

import asyncio

import pytest

from fastq.pool.main.config import PoolConfig
from fastq.server.children.spare_child import SpareChild
from tests.pool.harness import run
from tests.processes import children
from tests.server.harness import logged
from tests.waiting import until

HERE = "tests.pool.runners:load"


def spare(argument: str = "") -> SpareChild:
    return SpareChild(PoolConfig(HERE, argument, name="the spare one", timeout_grace=0.0))


@pytest.mark.parametrize("is_canceled", [False, True])
def test_a_stop_amid_the_start_leaves_no_process(is_canceled: bool) -> None:
    async def test() -> None:
        before = children()
        asked = spare("hang")  # its import never ends
        asking = asyncio.create_task(asked.ask(b"", 10.0, 10.0))
        await until(lambda: children() - before)
        if is_canceled:
            asking.cancel()
            await asyncio.wait({asking})
            assert asking.cancelled()
        await asked.stop()
        assert not children() - before
        if not is_canceled:
            assert await asking is None

    run(test())


def test_one_who_is_cancelled_amid_the_start_leaves_the_child_to_the_others() -> None:
    async def test() -> None:
        before = children()
        asked = spare()
        first, second = asyncio.create_task(asked.start()), asyncio.create_task(asked.start())
        await until(lambda: children() - before)
        first.cancel()
        assert await second
        assert len(children() - before) == 1
        await asked.stop()
        assert not children() - before

    run(test())


def test_a_child_that_cannot_be_loaded_is_said_once_a_try_and_leaves_no_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        before = children()
        asked = spare("raise")
        assert not any(await asyncio.gather(asked.start(), asked.start()))
        assert not await asked.start()
        assert not children() - before
        await asked.stop()
        assert not await asked.start()

    run(test())
    assert len(logged(caplog)) == 2


def test_what_its_pool_notices_is_logged_as_of_the_hooks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    child = spare()
    child.on_notice("trouble")
    child.on_info("news")
    assert [(record.name, record.message) for record in caplog.records] == [("fastq.hooks", "trouble")]


def test_a_start_after_the_stop_is_refused() -> None:
    async def test() -> None:
        before = children()
        asked = spare()
        await asked.stop()
        assert await asked.ask(b"", 10.0, 10.0) is None
        assert not await asked.start()
        assert not children() - before

    run(test())
