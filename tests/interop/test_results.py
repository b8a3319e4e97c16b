"""Clients of fastq wait for tasks that a Go server runs; it knows nothing of inboxes, so they learn it by looking."""

import json
from typing import Any

import pytest
from redis import Redis

from fastq import Client, Task, TaskFailedError, TaskGoneError
from tests.interop.peer import GoPeer

pytestmark = pytest.mark.interop

QUEUE = "go"
FATES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"do": "result", "result": "YWI="}, {}),
    ({"do": "ok"}, {}),
    ({"do": "error", "text": "no"}, {"max_retry": 0}),
    ({"do": "skip", "text": "bad"}, {}),
    ({"do": "error", "text": "once", "times": 1}, {"max_retry": 3}),
    ({"do": "revoke", "text": "off"}, {}),
]
"""What becomes of a task by its number, and its options."""


def found(client: Client, handle: Any) -> object:
    try:
        return handle.result(timeout=60)
    except TaskFailedError as error:
        return (type(error), error.error)
    except TaskGoneError as error:
        return type(error)


def test_every_wait_for_a_task_of_a_go_server_ends(go: GoPeer, redis_url: str, db: Redis) -> None:
    tasks = [
        Task("job", json.dumps(FATES[number % 6][0]).encode(), queue=QUEUE, **FATES[number % 6][1])
        for number in range(120)
    ]
    with (
        Client(redis_url) as client,
        go.server(
            queues={QUEUE: 1}, concurrency=20, retry_delay_ns=1, task_check_ns=10**8, delayed_task_check_ns=10**8
        ),
    ):
        handles = client.submit_many(tasks)
        ended = list(client.as_completed(handles, timeout=60))
        assert len(ended) == len(handles)
        outcomes = [found(client, handle) for handle in handles]
    assert db.pubsub_channels() == []
    assert (
        outcomes
        == [
            b"ab",
            None,
            (TaskFailedError, "no"),
            (TaskFailedError, "bad: skip retry for the task"),
            None,
            TaskGoneError,
        ]
        * 20
    )
