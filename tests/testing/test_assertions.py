"""assert_enqueued: it finds what is there, and says what is there instead."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq import Client, ServeMux
from fastq.common.states import TaskState
from fastq.testing import InlineClient, assert_enqueued


@pytest.fixture(params=["inline", "client", "url", "redis"])
def place(request: pytest.FixtureRequest, url: str, db: Redis) -> Iterator[Any]:
    """Return what enqueues, and what assert_enqueued is to be asked with."""
    if request.param == "inline":
        inline = InlineClient(ServeMux())
        yield inline, inline
        return
    with Client(url) as client:
        yield client, {"client": client, "url": url, "redis": db}[request.param]


def test_a_task_is_found_in_any_state_in_which_it_waits(place: Any) -> None:
    client, where = place
    client.enqueue("t", {"n": 1}, task_id="p")
    client.enqueue("t", {"n": 2}, task_id="s", process_in=60, queue="low")
    client.enqueue("t", {"n": 3}, task_id="g", group="g")
    client.enqueue("other", task_id="o")
    assert {info.id for info in assert_enqueued(where, "t")} == {"p", "s", "g"}
    assert [info.id for info in assert_enqueued(where, "t", state="scheduled", queue="low")] == ["s"]
    assert [info.id for info in assert_enqueued(where, "t", group="g")] == ["g"]
    (info,) = assert_enqueued(where, "t", payload={"n": 1}, state=TaskState.PENDING)
    assert (info.id, info.max_retry) == ("p", 25)


def test_the_payload_is_compared_as_json_or_as_bytes(place: Any) -> None:
    client, where = place
    client.enqueue("t", b'{ "b": 1, "a": [] }')
    client.enqueue("t", b"\xff", headers={"k": "v"})
    assert_enqueued(where, "t", payload={"a": [], "b": 1}, count=1)
    assert_enqueued(where, "t", payload=b'{ "b": 1, "a": [] }', count=1)
    assert_enqueued(where, "t", payload=b"\xff", headers={"k": "v"}, count=1)
    assert_enqueued(where, "t", payload=b'{"b":1,"a":[]}', count=0)
    assert assert_enqueued(where, "t", payload=None, count=0) == []


def test_the_message_shows_the_nearest_first(place: Any) -> None:
    client, where = place
    client.enqueue("unlike", {"id": 7})
    client.enqueue("t", {"id": 2}, queue="low")
    client.enqueue("t", {"id": 1}, queue="low")
    with pytest.raises(AssertionError) as raised:
        assert_enqueued(where, "t", payload={"id": 1}, queue="high")
    assert str(raised.value).splitlines() == [
        "no task 't' with payload={'id': 1}, queue='high' was enqueued; these were:",
        "  't' in queue low, pending: queue is 'low'",
        "  't' in queue low, pending: payload is {'id': 2}; queue is 'low'",
        "  'unlike' in queue default, pending: payload is {'id': 7}; queue is 'default'",
    ]


def test_the_number_is_to_be_right_if_given(place: Any) -> None:
    client, where = place
    for number in range(3):
        client.enqueue("t", number)
    assert len(assert_enqueued(where, "t", count=3)) == 3
    for count in (0, 2, 4):
        with pytest.raises(AssertionError, match=f"^3 tasks 't' were enqueued, not {count}; these were:\n"):
            assert_enqueued(where, "t", count=count)


def test_nothing_at_all_is_said_and_many_are_cut(place: Any) -> None:
    client, where = place
    with pytest.raises(AssertionError, match=r"^no task 't' was enqueued, nor any other task$"):
        assert_enqueued(where, "t")
    for _ in range(12):
        client.enqueue("other", "x" * 1000)
    with pytest.raises(AssertionError) as raised:
        assert_enqueued(where, "t", payload="y")
    lines = str(raised.value).splitlines()
    assert (len(lines), lines[-1]) == (12, "  and 2 more")
    assert max(len(line) for line in lines) < 300


def test_a_field_that_there_is_not_is_a_misuse_and_no_failure(place: Any) -> None:
    _, where = place
    with pytest.raises(TypeError, match="assert_enqueued: TaskInfo has no qeue; it has id, queue"):
        assert_enqueued(where, "t", qeue="x")
