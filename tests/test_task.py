"""Task: what it takes for a payload, what it refuses, and what it keeps."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from fastq import PayloadCodec, RunningTask, ServeMux, Task
from fastq.task import MAX_MESSAGE_BYTES, encode_payload, lock_payload
from fastq.testing import InlineClient
from tests.bad_input import BAD_OPTIONS


@pytest.mark.parametrize(
    ("payload", "data"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (b"", b""),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abcd")[::2], b"ac"),
        (None, b""),
        ({"id": 1, "ü": [1.5, None, True]}, '{"id":1,"ü":[1.5,null,true]}'.encode()),
        ("text", b'"text"'),
        ("", b'""'),
        (0, b"0"),
        (False, b"false"),
        ([], b"[]"),
        (datetime(2030, 1, 1, tzinfo=UTC), b'"2030-01-01T00:00:00+00:00"'),
    ],
)
def test_a_payload_is_bytes_or_becomes_json(payload: object, data: bytes) -> None:
    task = Task("t", payload)
    assert task.payload == data
    assert type(task.payload) is bytes


def test_a_payload_of_json_comes_back() -> None:
    assert Task("t", {"id": [1, "ü"]}).json() == {"id": [1, "ü"]}


def test_a_payload_that_is_no_json_says_so() -> None:
    with pytest.raises(ValueError, match="line 1 column 1"):
        Task("t", b"no json").json()


def test_no_payload_and_an_empty_one_have_different_locks() -> None:
    assert lock_payload(Task("t", None)) is None
    assert lock_payload(Task("t", b"")) == b""
    assert lock_payload(Task("t")) is None


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (object(), "payload of type object cannot be encoded as JSON: "),
        ({1, 2}, "payload of type set cannot be encoded as JSON: "),
        ({"a": b"bytes"}, "payload of type dict cannot be encoded as JSON: "),
        ({1: "a"}, "payload of type dict cannot be encoded as JSON: "),
        ("\ud800", "payload of type str cannot be encoded as JSON: "),
        (2**64, "payload of type int cannot be encoded as JSON: "),
    ],
)
def test_a_payload_that_cannot_be_encoded_is_refused(payload: object, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message) + r".+; pass bytes instead$"):
        Task("t", payload)


def test_a_payload_that_cannot_be_encoded_is_named_by_its_path() -> None:
    with pytest.raises(
        TypeError, match=r"^payload of type dict .*: \$\.rows\[1\]\.when is of type set; pass bytes instead$"
    ):
        Task("t", {"rows": [None, {"when": {1}}]})


def test_nan_and_infinity_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^payload cannot be encoded as JSON, .* infinity: \$\.x is nan$"):
        Task("t", {"x": float("nan")})


def test_a_payload_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match=r"^payload of type list cannot be encoded as JSON: .*ecursion"):
        Task("t", endless)


@pytest.mark.parametrize("make", [bytes, bytearray])
def test_a_payload_above_the_limit_of_redis_is_refused(make: type[bytes] | type[bytearray]) -> None:
    with pytest.raises(
        ValueError,
        match=r"^payload of 629145600 bytes is over Redis' limit of 536870912 bytes for a value; "
        r"store it elsewhere and enqueue a reference$",
    ):
        Task("t", make(600 * 1024 * 1024))


def test_a_payload_of_the_limit_itself_is_taken_as_it_is() -> None:
    payload = bytes(MAX_MESSAGE_BYTES)
    assert Task("t", payload).payload is payload
    assert encode_payload(payload) is payload


@pytest.mark.parametrize(
    ("task_type", "kind", "message"),
    [
        ("", ValueError, "task type must contain one or more characters that are not blank: ''"),
        ("\u00a0", ValueError, "task type must contain one or more characters that are not blank: '\\xa0'"),
        ("a\udc80", ValueError, "task type must be valid Unicode text: 'a\\udc80'"),
        (None, TypeError, "task type must be a str, not NoneType: None"),
        (b"t", TypeError, "task type must be a str, not bytes: b't'"),
    ],
)
def test_a_type_that_cannot_stand_on_the_wire_is_refused(task_type: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        Task(task_type)


def test_a_bad_option_is_refused_when_the_task_is_made() -> None:
    for name, value, kind, message in BAD_OPTIONS:
        with pytest.raises(kind, match=f"^{message}$"):
            Task("t", b"", **{name: value})


def test_an_unknown_option_is_refused_when_the_task_is_made() -> None:
    with pytest.raises(TypeError, match=r"^unknown option 'max_retires'; did you mean 'max_retry'\?$"):
        Task("t", max_retires=3)  # type: ignore[call-arg]  # refused by mypy, too


@pytest.mark.parametrize("headers", [{"a": "1"}, MappingProxyType({"a": "1"})])
def test_headers_are_copied(headers: Mapping[str, str]) -> None:
    task = Task("t", headers=headers)
    assert task.headers == {"a": "1"}
    assert task.headers is not headers


def test_no_headers_are_an_empty_mapping() -> None:
    assert Task("t").headers == {}
    assert Task("t", headers={}).headers == {}
    assert Task("t", headers=None).headers == {}


def test_headers_given_in_pairs_are_refused() -> None:
    pairs: Any = [("a", "1")]
    with pytest.raises(TypeError, match="headers must be a mapping of str to str, not list"):
        Task("t", headers=pairs)


def test_the_repr_shows_type_and_size_but_no_content() -> None:
    assert repr(Task("email:send", b"secret")) == "Task('email:send', <6 bytes>)"


class Reversed:
    """A codec: text, the last letter first."""

    content_type = "text/x-reversed"

    def encode(self, value: Any) -> bytes:
        return str(value)[::-1].encode()

    def decode(self, data: bytes) -> str:
        return data.decode()[::-1]


REVERSED: PayloadCodec = Reversed()


def test_a_codec_encodes_the_payload_and_is_named_in_a_header() -> None:
    task = Task("t", "abc", codec=REVERSED, headers={"a": "1"})
    assert (task.payload, task.headers) == (b"cba", {"content-type": "text/x-reversed", "a": "1"})
    assert lock_payload(task) == b"cba"
    assert task.decode(REVERSED) == "abc"
    assert Task("t", {1, 2}, codec=REVERSED).payload, "JSON is not asked"


@pytest.mark.parametrize("payload", [None, b"", b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_a_codec_leaves_bytes_and_no_payload_alone(payload: Any) -> None:
    task = Task("t", payload, codec=REVERSED)
    assert (task.payload, task.headers) == (bytes(payload or b""), {})
    assert (lock_payload(task) is None) is (payload is None)


def test_a_header_that_is_given_wins_over_that_of_the_codec() -> None:
    assert Task("t", "abc", codec=REVERSED, headers={"content-type": "x"}).headers == {"content-type": "x"}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"encode": str}, "returned str, not bytes"),
        ({"content_type": 5}, "content_type must be a str, not int: 5"),
        ({"content_type": " "}, "content_type must contain one or more characters that are not blank: ' '"),
    ],
)
def test_a_codec_that_does_not_keep_its_word_is_named(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        Task("t", "abc", codec=type("Odd", (Reversed,), attributes)())


def test_a_payload_is_decoded_by_what_its_header_names() -> None:
    assert Task("t", [1]).decode() == Task("t", [1]).decode(REVERSED) == [1]
    assert Task("t", [1], headers={"content-type": "application/json"}).decode(REVERSED) == [1]
    with pytest.raises(
        ValueError,
        match=r"^the payload of a task 't' is 'text/x-reversed', and what can be decoded is application/json$",
    ):
        Task("t", "abc", codec=REVERSED).decode()
    with pytest.raises(ValueError, match="is 'x', and what can be decoded is application/json, text/x-reversed"):
        Task("t", "abc", headers={"content-type": "x"}).decode(REVERSED)


def test_a_codec_may_stand_for_json() -> None:
    codec = type("Json", (Reversed,), {"content_type": "application/json"})()
    assert Task("t", b"cba").decode(codec) == "abc"


def test_a_copy_has_other_options_headers_or_payload() -> None:
    task = Task("t", queue="low", max_retry=3, headers={"a": "1"})
    copies = [
        task.replace(),
        task.replace(queue="high", timeout=5),
        task.replace(headers={"b": "2"}),
        task.replace(b"x"),
    ]
    assert [each.options.get("queue") for each in copies] == ["low", "high", "low", "low"]
    assert [each.options.get("timeout") for each in copies] == [None, 5, None, None]
    assert [each.headers for each in copies] == [{"a": "1"}, {"a": "1"}, {"b": "2"}, {"a": "1"}]
    assert [lock_payload(each) for each in copies] == [None, None, None, b"x"]
    assert (task.options, task.headers, task.payload) == ({"queue": "low", "max_retry": 3}, {"a": "1"}, b"")
    assert all(each is not task for each in copies)


def test_a_copy_is_checked() -> None:
    with pytest.raises(TypeError, match="unknown option 'que'"):
        Task("t").replace(que="low")  # type: ignore[call-arg]  # what is tested
    with pytest.raises(TypeError, match=r"^payload must be bytes, not dict: \{'a': 1\}$"):
        Task("t").replace({"a": 1})  # type: ignore[arg-type]  # what is tested


def test_a_copy_is_of_the_same_class() -> None:
    class Own(Task):
        __slots__ = ("mark",)
        mark: int

    task = Own("t")
    task.mark = 5
    assert task.replace(queue="low").mark == 5


def test_a_running_task_can_be_enqueued_again_with_other_options() -> None:
    mux: ServeMux = ServeMux()
    client = InlineClient(mux)

    @mux.handler("t")
    def handle(task: RunningTask) -> str:
        if task.queue == "default":
            client.enqueue(task.replace(queue="low", headers={**task.headers, "again": "1"}))
        return task.headers.get("again", "")

    client.enqueue("t", b"x", headers={"a": "1"})
    assert [(run.queue, run.payload, run.json()) for run in client.runs] == [("default", b"x", ""), ("low", b"x", "1")]
