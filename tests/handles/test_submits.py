"""A result belongs to its submit: neither an earlier nor a later task of the same id ends a wait for it."""

import pytest

from fastq import Client, Task, TaskGoneError, TaskState
from fastq.broker.operations.cancel import _delete
from fastq.common.clock import at_unix_ns
from fastq.wire import keys
from fastq.wire.progress import TaskProgress, encode_progress
from tests.handles.site import QUEUE, Site
from tests.handles.test_blocking import begin, client, site
from tests.waiting import wait_until

__all__ = ["client", "site"]


def test_a_late_message_of_an_earlier_task_of_the_same_id_ends_no_wait(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 1e6
    first = client.submit("t", task_id="a")
    late = site.db.hget(keys.task(QUEUE, "a"), "msg")
    site.end("a", result=b"1", tells=False)
    assert first.result() == b"1"
    site.db.delete(keys.task(QUEUE, "a"))
    waiting = begin(client, client.submit("t", task_id="a").result)
    for state, error in (("completed", ""), ("archived", "ValueError: of the first"), ("gone", "")):
        assert site.tell(late, state, error=error) == 1
    site.end("a", result=b"2")
    assert waiting.ended() == b"2"


def test_a_handle_does_not_take_the_end_of_another_submit_for_its_own(client: Client, site: Site) -> None:
    first = [client.submit("t", task_id=name) for name in "abc"]
    site.db.delete(*(keys.task(QUEUE, name) for name in "abc"))
    second = [client.submit("t", task_id=name) for name in "abc"]
    for name, state in zip("ab", ("completed", "archived"), strict=True):
        site.end(name, state, b"2", tells=False)
    for handle in first:
        with pytest.raises(TaskGoneError):
            handle.result()
    assert second[0].result() == b"2"
    more = client.submit_many(Task("t", task_id=name) for name in "de")
    site.db.delete(*(keys.task(QUEUE, name) for name in "de"))
    client.submit_many(Task("t", task_id=name) for name in "de")
    for name, state in zip("de", ("completed", "archived"), strict=True):
        site.end(name, state, b"2", tells=False)
    for handle in client.as_completed(more):
        with pytest.raises(TaskGoneError):
            handle.result()


def test_a_handle_neither_asks_nor_touches_the_task_of_another_submit(client: Client, site: Site) -> None:
    first, task = client.submit("t", task_id="a"), keys.task(QUEUE, "a")
    site.db.delete(task, keys.pending(QUEUE))
    second = client.submit("t", task_id="a")
    site.db.hset(task, mapping={"state": "active", "progress": encode_progress(1, 2, "", 0)})
    assert (second.state(), second.progress()) == (TaskState.ACTIVE, TaskProgress(1, 2, "", at_unix_ns(0)))
    assert first.progress() is None
    with pytest.raises(TaskGoneError):
        first.state()
    site.db.hset(task, "state", "pending")
    first.cancel()
    assert site.db.exists(task)
    # As if the task had been its own a moment ago.
    assert client._waiter._broker.run(_delete(first.task, TaskState.PENDING)) == 0
    assert site.db.exists(task)
    second.cancel()
    assert not site.db.exists(task)


def test_what_an_earlier_attempt_has_told_is_not_the_next_ones(client: Client, site: Site) -> None:
    handle, task = client.submit("t", task_id="a"), keys.task(QUEUE, "a")
    site.db.hset(task, mapping={"state": "archived", "progress": encode_progress(1, 2, "", 0)})
    assert handle.progress() is not None
    site.db.hset(task, "state", "pending")  # as asynqmon does
    assert handle.progress() is None


def test_the_message_of_an_older_server_has_the_client_look(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 1e6
    handle, looks = client.submit("t", task_id="a"), site.looks()
    message = site.db.hget(keys.task(QUEUE, "a"), "msg")
    waiting = begin(client, handle.result)
    wait_until(lambda: site.looks() > looks)
    site.tell(message, "completed", knows_submits=False)
    site.end("a", result=b"7", tells=False)
    site.tell(message, "completed", knows_submits=False)
    assert waiting.ended() == b"7"
