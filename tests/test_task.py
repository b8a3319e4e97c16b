"""Task: what it takes for a payload, what it refuses, and what it keeps."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from fastq import Task
from fastq.task import MAX_MESSAGE_BYTES, encode_payload, lock_payload
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
        r"store it elsewhere and enqueue where it is$",
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


@pytest.mark.parametrize(("name", "value", "kind", "message"), BAD_OPTIONS)
def test_a_bad_option_is_refused_when_the_task_is_made(
    name: str, value: Any, kind: type[Exception], message: str
) -> None:
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
