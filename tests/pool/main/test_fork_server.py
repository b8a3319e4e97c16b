"""The preloader that several pools share."""

import asyncio
import os
import signal

import pytest

from fastq.pool.main.child import ChildState
from fastq.pool.main.pool import ProcessPool
from fastq.pool.main.protocol import PoolListener
from tests.pool.harness import bench, run, settings
from tests.waiting import until


def test_pools_of_one_preloader_order_no_more_children_together_than_it_may_have_unanswered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastq.pool.main.fork_server._MAX_UNANSWERED", 2)

    async def test() -> None:
        async with bench() as b:
            pools = [ProcessPool(settings(processes=3), b.forks) for _ in range(2)]
            # An order of the first pool that is not answered yet would count.
            await until(lambda: not b.forks._unanswered)
            os.kill(b.pool.preloader_pid, signal.SIGSTOP)
            try:
                starts = [asyncio.create_task(pool.start(PoolListener())) for pool in pools]
                await asyncio.sleep(0)
                assert [len(pool._supervisor.children) for pool in pools] == [2, 0]
            finally:
                os.kill(b.pool.preloader_pid, signal.SIGCONT)
            await asyncio.gather(*starts)
            for pool in pools:
                assert list(pool.child_states.values()) == [ChildState.READY] * 3
                await pool.stop()

    run(test())
