"""A virtual address leads to another server, as keepalived or a load balancer has it: all go on at the new one."""

import asyncio
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fastq import AsyncClient, BrokerReadOnlyError, BrokerTimeoutError, Client, TaskIDConflictError
from tests.chaos.topology.network import CLIENT, network
from tests.e2e.harness import Worker, workers_on
from tests.e2e.view import View
from tests.ports import free_port
from tests.redis_servers import redis_server
from tests.waiting import wait_until

TIMES = 25


async def refused(enqueue: Callable[..., Any], task_id: str) -> int:
    """Enqueue a task; return how often a replica refused it. A slow machine may ask for patience, too."""
    count = 0
    for _ in range(TIMES):
        with suppress(BrokerTimeoutError):
            try:
                info = enqueue("ok", task_id=task_id, retention=3600)
                if inspect.isawaitable(info):
                    await info
            except BrokerReadOnlyError:
                count += 1
                continue
            except TaskIDConflictError:
                pass
            return count
    raise AssertionError(f"{task_id} could not be enqueued")


@pytest.mark.skipif(sys.platform != "linux", reason="the network of the topology bench is Linux's")
@pytest.mark.parametrize("old_connections", ["cut", "half-open", "kept"])
def test_a_virtual_address_that_leads_to_another_server_is_followed(old_connections: str, tmp_path: Path) -> None:
    """What a switch does with the old connections: it ends them, drops what they carry, or lets them live.

    In the last case they lead to a server that is a replica by then; each client learns it by one refused call.
    """
    with (
        redis_server(free_port()) as old,
        redis_server(free_port()) as new,
        redis_server() as events,
        network() as net,
        workers_on(events.url, tmp_path) as workers,
    ):
        leads_to = [("old", old.port)]
        address = net.open(lambda: leads_to[0])
        url = f"redis://127.0.0.1:{address}?read_timeout=1"
        before, after = old.client(), View(new.client())
        after.db.replicaof("127.0.0.1", old.port)

        def switch() -> None:
            after.db.replicaof("NO", "ONE")
            leads_to[0] = ("new", new.port)
            if old_connections == "kept":
                before.replicaof("127.0.0.1", new.port)
            elif old_connections == "half-open":
                net.cut_off("old", [CLIENT])
            else:
                net.cut(address)

        async def test(worker: Worker) -> None:
            async with AsyncClient(url) as looping:
                with Client(url) as blocking:
                    running = blocking.enqueue("until-file", headers={"file": str(tmp_path / "go")}, retention=3600)
                    View(events.client()).expect("started", running.id)
                    assert await refused(looping.enqueue, "a") == 0
                    after.until("completed", "a")  # the replica has all that was before
                    switch()
                    most = 1 if old_connections == "kept" else 0
                    assert await refused(blocking.enqueue, "b") <= most
                    assert await refused(looping.enqueue, "c") <= most
                    (tmp_path / "go").touch()
                    for task_id in ("b", "c", running.id):
                        message = after.until("completed", task_id)
                        assert message is not None
                        assert message.retried == 0
                    assert after.count("processed") == 4
                    # Nobody refuses the waker at the old server, and a replica may hear of pushes late or never.
                    wait_until(lambda: after.facts("clients")["tracking_clients"] == 1)
                    assert worker.stop() == 0, worker.text

        worker = workers.start("--concurrency", "2", "--redis", url).is_ready()
        asyncio.run(test(worker))
