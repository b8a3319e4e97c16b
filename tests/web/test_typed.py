"""The form of a typed task: a field for each argument, checked as ``enqueue`` checks it."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from html import unescape
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from fastq import App, Inspector
from fastq.web import FastqWeb
from fastq.web.typed import MisfitsError, inputs_of, task_of
from tests.web.serving import serving
from tests.web.test_pages import send, text_of

app = App()


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Address:
    city: str
    lines: list[str]


@app.task("order:send", queue="orders", max_retry=7)
def order(
    id: int,
    note: str,
    at: datetime,
    address: Address,
    color: Color = Color.RED,
    size: Literal[1, 2] = 1,
    gift: bool = False,
    share: Annotated[float, Meta(gt=0, le=1)] | None = None,
    wait: timedelta = timedelta(minutes=1),
    data: bytes = b"x",
    who: int | str | None = None,
) -> None:
    """Send an order.

    The rest is not shown."""


@app.task("beat")
def beat() -> None: ...


@app.task("pick", queue="theirs")
def pick(color: Color | None) -> None: ...


GIVEN = {
    "arg.id": " 9007199254740993 ",
    "arg.note": ' two\r\n"lines" ',
    "arg.at": "2026-11-22T17:00:00Z",
    "arg.address": '{"city": "Köln", "lines": []}',
}
PAYLOAD: dict[str, Any] = {
    "id": 9007199254740993,
    "note": ' two\n"lines" ',
    "at": "2026-11-22T17:00:00Z",
    "address": {"city": "Köln", "lines": []},
}


def test_the_fields_follow_the_annotations() -> None:
    found = {each.name: (each.kind, each.hint.partition(",")[0], each.default) for each in inputs_of(order)}
    assert found == {
        "id": ("line", "whole number", ""),
        "note": ("line", "text", ""),
        "at": ("line", "time", ""),
        "address": ("json", "JSON", ""),
        "color": ("choice", "", '"red"'),
        "size": ("choice", "", "1"),
        "gift": ("choice", "", "false"),
        "share": ("line", "number", "null"),
        "wait": ("line", "duration", '"PT60S"'),
        "data": ("line", "base64", '"eA=="'),
        "who": ("json", "JSON", "null"),
    }


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("color", '"blue"', "blue"),
        ("size", "2", 2),
        ("gift", "true", True),
        ("share", "0.5", 0.5),
        ("wait", "PT1H", "PT3600S"),
        ("data", "aGk=", "aGk="),
        ("who", '"7"', "7"),
        ("who", "7", 7),
    ],
)
def test_what_was_typed_is_what_enqueue_sends(name: str, text: str, value: Any) -> None:
    task = task_of(order, {**{key: each.replace("\r\n", "\n") for key, each in GIVEN.items()}, f"arg.{name}": text})
    assert json.loads(task.payload or b"") == {**PAYLOAD, name: value}
    assert task_of(pick, {}).payload == pick.task(None).payload
    assert task_of(beat, {}).payload == beat.task().payload


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("id", "many", "Expected int, got str"),
        ("id", "1.5", "Expected int, got float"),
        ("id", "", "Expected int, got str"),
        ("at", "2026-11-22T17:00:00", "Expected datetime with a timezone component"),
        ("address", "", "is needed"),
        ("address", '{"city": 1}', "Expected str, got int - at $.city"),
        ("address", "{", "Input data was truncated"),
        ("color", '"green"', "Invalid enum value 'green'"),
        ("share", "2", "Expected float <= 1.0"),
        ("share", "NaN", "Expected float | null, got str"),
        ("data", "?", "Invalid base64 encoded string"),
    ],
)
def test_what_does_not_fit_is_said_beside_its_field(name: str, text: str, why: str) -> None:
    with pytest.raises(MisfitsError) as error:
        task_of(order, {**GIVEN, f"arg.{name}": text})
    assert error.value.wrong == {f"arg.{name}": why}


def test_a_typed_task_is_enqueued_through_its_form(url: str) -> None:
    with serving(FastqWeb(url, app=app, auth=None)) as served, Inspector(url) as inspector:
        choice = served.get("/enqueue").text
        assert "<option>order:send</option>" in choice
        form = served.get("/enqueue?task=order:send")
        assert "Send an order." in text_of(form)
        assert "The rest" not in form.text
        for part in ('name="arg.id"', 'placeholder="orders"', "default: &#34;red&#34;", '<option value="2">2</option>'):
            assert part in form.text
        assert 'name="payload"' not in form.text
        bad = send(served, "/enqueue", task="order:send", **{**GIVEN, "arg.id": "x", "arg.address": ""})
        assert bad.status == 400
        for part in ('id="wrong-arg.id">Expected int, got str<', 'id="wrong-arg.address">is needed<'):
            assert part in bad.text
        assert 'aria-describedby="wrong-arg.id"' in bad.text
        assert ' two\n"lines" ' in unescape(bad.text).replace("\r\n", "\n")  # what was typed is kept
        bad = send(served, "/enqueue", task="order:send", timeout="soon", max_retry="many", **GIVEN)
        assert 'id="wrong-timeout"' in bad.text
        assert 'id="wrong-max_retry"' in bad.text
        assert inspector.queues() == []
        sent = send(served, "/enqueue", task="order:send", task_id="x", timeout="90", **GIVEN)
        assert (sent.status, sent.headers["location"]) == (303, "/queues/orders/tasks/x?did=enqueue&done=1")
        info = inspector.get_task_info("orders", "x")
        expected = order.task(
            PAYLOAD["id"], PAYLOAD["note"], datetime(2026, 11, 22, 17, tzinfo=UTC), Address("Köln", [])
        )
        assert (info.type, info.payload) == ("order:send", expected.payload)
        assert (info.max_retry, info.timeout) == (7, timedelta(seconds=90))
        assert served.get("/enqueue?task=none").status == 404
        assert send(served, "/enqueue", task="none").status == 404


def test_typed_tasks_of_other_queues_and_no_app_leave_the_raw_form(url: str) -> None:
    with serving(FastqWeb(url, app=app, queues=["orders"], auth=None)) as served:
        assert "pick" not in served.get("/enqueue").text
        assert served.get("/enqueue?task=pick").status == 404
        assert send(served, "/enqueue", task="order:send", queue="theirs", **GIVEN).status == 403
    with serving(FastqWeb(url, auth=None)) as served:
        form = served.get("/enqueue").text
        assert 'name="payload"' in form
        assert "<select" not in form
    with pytest.raises(TypeError, match=r"app must be a fastq\.App, not 'app'"):
        FastqWeb(url, app="app", auth=None)  # type: ignore[arg-type]  # as from a caller without types
