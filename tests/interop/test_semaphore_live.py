"""One semaphore for Go's x/rate and fastq: same tokens, same times."""

import os
import signal
import time
from typing import Any

import pytest

from fastq import Client, Task
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.interop.peer import SECOND_NS, GoPeer
from tests.interop.records import GoTask
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

KEY = "asynq:sema:api"
QUICK: dict[str, Any] = {"queues": {"go": 1}, "task_check_ns": SECOND_NS // 100, "concurrency": 5}
LIMITED = {"scope": "api", "tokens": "3"}


def hold_in_go(go: GoPeer, task_id: str) -> None:
    """Let a task of the Go server's wait at a gate with a token, or fail without one."""
    script = b'{"do": "wait", "gate": "g", "scope": "api", "tokens": 3}'
    go.enqueue(GoTask("t", script, None, {"task_id": task_id, "queue": "go", "timeout_ns": 60 * SECOND_NS}))


def holders(view: View) -> dict[str, float]:
    found: list[tuple[bytes, float]] = view.db.zrange(KEY, 0, -1, withscores=True)  # type: ignore[assignment]  # not awaitable
    return {member.decode(): score for member, score in found}


def hold_here(client: Client, task_id: str) -> None:
    """The same for a task of the fastq worker's."""
    client.enqueue(Task("limited", headers=LIMITED, task_id=task_id, timeout=60, retention=60))


def test_go_and_fastq_count_the_same_tokens(go: GoPeer, workers: Workers, view: View, redis_url: str) -> None:
    before_s = time.time()
    worker = workers.start("--concurrency", "2").is_ready()
    with go.server(**QUICK), Client(redis_url) as client:
        for task_id in ("go-1", "go-2"):
            hold_in_go(go, task_id)
        wait_until(lambda: len(holders(view)) == 2)
        hold_here(client, "here-1")
        view.expect("started", "here-1")
        found = holders(view)
        assert set(found) == {"go-1", "go-2", "here-1"}
        assert all(before_s + 59 <= score <= time.time() + 60 for score in found.values()), found
        hold_here(client, "here-2")
        refused = view.until("retry", "here-2")
        assert refused is not None
        assert refused.error_msg.startswith("snoozed (not failed): all 3 tokens of semaphore 'api' are held by other")
        hold_in_go(go, "go-3")
        refused = view.until("retry", "go-3", "go")
        assert refused is not None
        assert refused.error_msg == "no token is free"
        assert set(holders(view)) == set(found)
        view.open()
        view.until("completed", "here-1")
        hold_in_go(go, "go-4")
        wait_until(lambda: set(holders(view)) == {"go-1", "go-2", "go-4"})
        go.request("release", gate="g")
        wait_until(lambda: holders(view) == {})
    assert worker.stop() == 0, worker.text


def test_the_token_of_one_that_died_is_go_s_when_its_time_is_up(
    go: GoPeer, workers: Workers, view: View, redis_url: str
) -> None:
    workers.start("--concurrency", "1").is_ready()
    with go.server(**QUICK), Client(redis_url) as client:
        client.enqueue(Task("limited", headers={"scope": "api", "tokens": "1"}, task_id="dead", timeout=60))
        os.kill(view.expect("started", "dead").pid, signal.SIGKILL)
        view.until("retry", "dead")
        assert set(holders(view)) == {"dead"}
        script = b'{"do": "wait", "gate": "g", "scope": "api", "tokens": 1}'
        go.enqueue(GoTask("t", script, None, {"task_id": "early", "queue": "go"}))
        view.until("retry", "early", "go")
        view.db.zadd(KEY, {"dead": int(time.time()) - 2})
        go.enqueue(GoTask("t", script, None, {"task_id": "late", "queue": "go"}))
        wait_until(lambda: set(holders(view)) == {"late"})
        go.request("release", gate="g")
        wait_until(lambda: holders(view) == {})
