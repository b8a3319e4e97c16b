import copy
import pickle
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, strategies

from fastq._codec import completed_message
from fastq.wire.codec import (
    InvalidMessageError,
    TaskMessage,
    clean_text,
    decode_task_message,
    encode_task_message,
    rewrite_task_message,
    view_task_message,
)
from tests.fuzz.inputs import nested_groups, span, tag
from tests.fuzz.strategies import TYPICAL, changes, messages


@pytest.mark.parametrize("name", ["retry", "retried"])
@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**64, -(2**900)])
def test_number_that_does_not_fit_names_field_and_value(name: str, value: int) -> None:
    with pytest.raises(InvalidMessageError, match=f"{name} does not fit in 32 bits: {value}"):
        encode_task_message(TYPICAL.replace(**{name: value}))


def test_number_too_long_to_print_is_refused_all_the_same() -> None:
    with pytest.raises(InvalidMessageError, match="retry does not fit in 32 bits: a number of 100001 bits"):
        encode_task_message(TaskMessage(retry=2**100_000))


@pytest.mark.parametrize("name", ["timeout", "deadline", "last_failed_at", "retention", "completed_at"])
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_long_number_that_does_not_fit_names_field_and_value(name: str, value: int) -> None:
    with pytest.raises(InvalidMessageError, match=f"{name} does not fit in 64 bits: {value}"):
        encode_task_message(TYPICAL.replace(**{name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("type", None),
        ("type", b"bytes"),
        ("queue", 5),
        ("retry", "25"),
        ("timeout", 1.5),
        ("payload", "text"),
        ("payload", 5),
        ("headers", {"a": 1}),
        ("headers", {1: "a"}),
        ("headers", 5),
    ],
)
def test_value_of_another_type_is_a_type_error_that_names_the_field(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=name):
        encode_task_message(TYPICAL.replace(**{name: value}))


@pytest.mark.parametrize("name", ["type", "id", "queue", "error_msg", "unique_key", "group_key"])
def test_surrogate_is_refused_and_clean_text_fixes_it(name: str) -> None:
    text = "bad \udcff\ud83d end"
    with pytest.raises(InvalidMessageError, match=f"{name} is not valid Unicode"):
        encode_task_message(TYPICAL.replace(**{name: text}))
    assert clean_text(text) == "bad \ufffd\ufffd end"
    assert clean_text("ok é 😀") == "ok é 😀"
    encode_task_message(TYPICAL.replace(**{name: clean_text(text)}))


def test_payload_may_be_any_buffer_and_headers_any_mapping() -> None:
    msg = TYPICAL.replace(payload=memoryview(b"abc"), headers=MappingProxyType({"b": "2", "a": ""}))  # type: ignore[arg-type]  # more than the annotation promises
    assert encode_task_message(msg) == encode_task_message(TYPICAL.replace(payload=b"abc", headers={"b": "2", "a": ""}))


def test_message_is_made_compared_copied_and_shown_like_a_dataclass() -> None:
    msg = TaskMessage("t", b"p", "i", "q", 1, 2, "e", 3, 4, 5, "u", "g", 6, 7, {"k": "v"})
    assert msg == TaskMessage(
        type="t",
        payload=b"p",
        id="i",
        queue="q",
        retry=1,
        retried=2,
        error_msg="e",
        last_failed_at=3,
        timeout=4,
        deadline=5,
        unique_key="u",
        group_key="g",
        retention=6,
        completed_at=7,
        headers={"k": "v"},
    )
    assert eval(repr(msg)) == copy.deepcopy(msg) == pickle.loads(pickle.dumps(msg)) == msg
    assert repr(TaskMessage(id="i")) == "TaskMessage(id='i')"
    assert msg.replace(id="j") != msg
    assert msg != "t"
    assert TaskMessage().headers is not TaskMessage().headers
    with pytest.raises(TypeError):
        hash(msg)
    with pytest.raises(TypeError):
        TaskMessage(kind="t")  # type: ignore[call-arg]  # what is tested
    with pytest.raises(AttributeError):
        msg.kind = "t"  # type: ignore[attr-defined]  # what is tested


def test_field_can_be_set_and_a_deleted_one_is_missing_but_harmless() -> None:
    msg = TYPICAL.replace()
    msg.retried += 1
    assert decode_task_message(encode_task_message(msg)).retried == 1
    for name in ("id", "headers", "payload"):
        broken = TYPICAL.replace()
        delattr(broken, name)
        with pytest.raises(AttributeError, match=name):
            encode_task_message(broken)
        with pytest.raises(AttributeError, match=name):
            repr(broken)
    unmade = TaskMessage.__new__(TaskMessage)
    with pytest.raises(AttributeError):
        encode_task_message(unmade)


@given(messages, changes)
def test_rewriting_is_decoding_changing_and_encoding(msg: TaskMessage, values: Any) -> None:
    assert rewrite_task_message(encode_task_message(msg), **values) == encode_task_message(msg.replace(**values))


def test_rewriting_keeps_unknown_fields_and_removes_every_old_value() -> None:
    unknown = span(100, b"from the future"), tag(6, 5) + b"\x01\x02\x03\x04", nested_groups(3)
    data = tag(6, 0) + b"\x01" + unknown[0] + span(1, b"t") + unknown[1] + tag(6, 0) + b"\x02" + unknown[2]
    assert (
        rewrite_task_message(data, retried=3)
        == tag(6, 0) + b"\x03" + unknown[0] + span(1, b"t") + unknown[1] + (unknown[2])
    )
    assert rewrite_task_message(data, retried=0) == unknown[0] + span(1, b"t") + unknown[1] + unknown[2]
    assert rewrite_task_message(data, retried=None) == data


@given(messages, strategies.integers(-(2**63), 2**63 - 1))
def test_completing_is_rewriting_the_time_of_completion(msg: TaskMessage, completed_at: int) -> None:
    data = encode_task_message(msg) + span(100, b"from the future")
    found = completed_message(view_task_message(data), completed_at)
    assert found == rewrite_task_message(data, completed_at=completed_at)


def test_rewriting_refuses_what_encoding_refuses() -> None:
    data = encode_task_message(TYPICAL)
    with pytest.raises(InvalidMessageError, match="retried does not fit"):
        rewrite_task_message(data, retried=2**31)
    with pytest.raises(InvalidMessageError, match="error_msg is not valid Unicode"):
        rewrite_task_message(data, error_msg="\ud800")
    with pytest.raises(TypeError, match="has no kind"):
        rewrite_task_message(data, kind="t")  # type: ignore[call-arg]  # what is tested
    with pytest.raises(TypeError, match="data"):
        rewrite_task_message(data, data=b"")  # type: ignore[misc]  # the view's slot is no field
