"""A result belongs to its submit: neither an earlier nor a later task of the same id ends a wait for it."""

import pytest

from fastq import Client, Task, TaskGoneError
from fastq.wire import keys
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
