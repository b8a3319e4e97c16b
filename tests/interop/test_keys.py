"""Tasks by key and locks with other ends, beside real Go: its producers, its inspector, its servers."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from fastq import Client, DuplicateTaskError
from fastq.broker.operations.lease import Owner
from fastq.broker.transport.open import open_async_broker
from fastq.common.clock import SystemClock
from fastq.server.actors.lost_tasks import LostTaskRules, LostTasks
from fastq.server.actors.recoverer import Recoverer
from fastq.server.base.commands import Commands
from fastq.server.base.config import MAX_LOST
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.tally import Tally
from tests.interop.peer import QUICK, GoPeer
from tests.interop.records import GoTask, PeerError
from tests.server.harness import TRUSTING

pytestmark = pytest.mark.interop

WAIT = b'{"do": "wait", "gate": "g"}'


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    with Client(redis_url) as client:
        yield client


def test_a_go_producer_conflicts_with_a_key_and_its_task_is_replaced(go: GoPeer, client: Client) -> None:
    assert client.enqueue("t", b"1", key="k").key_outcome == "put"
    with pytest.raises(PeerError, match=r"ErrTaskIDConflict|task ID conflicts"):
        go.enqueue(GoTask("t", b"2", options={"task_id": "k"}))
    go.inspect("DeleteTask", "default", "k")
    go.enqueue(GoTask("t", b"3", options={"task_id": "k", "process_in_ns": 3600 * 10**9}))
    assert client.enqueue("t", b"4", key="k").key_outcome == "kept"
    info = client.enqueue("t", b"5", key="k", if_there="postpone", process_in=7200)
    assert (info.key_outcome, info.state) == ("postponed", "scheduled")
    read = go.task_info("default", "k")
    assert (read.state, read.payload) == ("scheduled", b"5")
    go.inspect("RunTask", "default", "k")
    with go.server(**QUICK):
        (run,) = go.executions(finished=1)
    assert run.payload == b"5"


def test_what_follows_a_run_on_a_go_server_is_put_by_ours(
    go: GoPeer, client: Client, db: redis.Redis, redis_url: str
) -> None:
    client.enqueue("t", WAIT, key="k", if_there="rerun")
    with go.server(**QUICK):
        go.executions(started=1)
        for payload in (b"2", b"3"):
            assert client.enqueue("t", payload, key="k", if_there="rerun").key_outcome == "rerun"
        go.request("release", gate="g")
        go.executions(finished=1)
    with go.server(**QUICK):
        assert db.exists("asynq:{default}:t:k") == 0
        look(redis_url)
        runs = go.executions(finished=2)
    assert [run.payload for run in runs] == [WAIT, b"3"]
    assert db.exists("asynq:{default}:again") == 0


def look(url: str) -> None:
    """Let one of our servers look once that has run no task by key."""

    async def recover() -> None:
        broker = open_async_broker(url)
        clock = SystemClock()
        in_flight = InFlight.of(Owner.draw(), StallWatch(clock), clock, TRUSTING)
        commands = Commands(broker)
        lost = LostTasks(commands, LostTaskRules(lambda retried: 3600.0, MAX_LOST, None, Tally), clock, in_flight.stats)
        await Recoverer(commands, ["default"], in_flight, lost, None).tick()
        await broker.close()

    asyncio.run(recover())


@pytest.mark.parametrize(
    ("until", "do", "is_held"),
    [
        ("done", b'{"do": "ok"}', False),
        ("start", b'{"do": "ok"}', False),
        ("end", b'{"do": "ok"}', False),
        ("expiry", b'{"do": "ok"}', True),
        ("done", b'{"do": "skip"}', True),
        ("end", b'{"do": "skip"}', True),
        ("expiry", b'{"do": "skip"}', True),
    ],
)
def test_a_go_server_releases_locks_as_the_page_says(
    go: GoPeer, client: Client, until: Any, do: bytes, is_held: bool
) -> None:
    client.enqueue("t", do, unique=3600, until=until)
    with pytest.raises(PeerError, match=r"ErrDuplicateTask|task already exists"):
        go.enqueue(GoTask("t", do, options={"unique_ns": 3600 * 10**9}))
    with go.server(**QUICK):
        go.executions(finished=1)
    if is_held:
        with pytest.raises(DuplicateTaskError):
            client.enqueue("t", do, unique=3600, until=until)
    else:
        client.enqueue("t", do, unique=3600, until=until)
