from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from fastq.wire.codec import (
    InvalidMessageError,
    TaskMessage,
    TaskView,
    decode_task_message,
    decode_task_messages,
    encode_task_message,
    rewrite_task_message,
    view_task_message,
)
from tests.fuzz.fuzz_codec import VIEWED
from tests.fuzz.inputs import nested_groups, span, tag, varint
from tests.fuzz.strategies import TYPICAL, messages


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_decoder_takes_any_bytes(kind: Callable[[bytes], bytes]) -> None:
    assert decode_task_message(kind(encode_task_message(TYPICAL))) == TYPICAL


def test_decoder_of_many_returns_what_that_of_one_does_and_the_types() -> None:
    messages = [TaskMessage(type=kind, payload=b"1", id=kind) for kind in ("a:b", "a:b", "c" * 99, "c" * 99)]
    data = [encode_task_message(each) for each in messages]
    assert decode_task_messages(data) == (messages, {"a:b", "c" * 99})
    assert decode_task_messages([]) == ([], set())
    with pytest.raises(InvalidMessageError, match="cut off"):
        decode_task_messages([*data, data[0][:-1]])
    with pytest.raises(TypeError, match="bytes"):
        decode_task_messages([bytearray(data[0])])  # type: ignore[list-item]


def test_decoder_takes_a_part_of_a_buffer_and_keeps_no_hold_on_it() -> None:
    data = encode_task_message(TYPICAL)
    ring = bytearray(b"\xff" * 8 + data + b"\xff" * 8)
    with memoryview(ring)[8:-8] as record:
        msg = decode_task_message(record)
    ring.clear()
    assert msg == TYPICAL


@pytest.mark.parametrize("data", [None, "text", 5, [1], memoryview(b"abcd")[::2]])
def test_decoder_refuses_what_is_no_buffer(data: Any) -> None:
    with pytest.raises((TypeError, BufferError)):
        decode_task_message(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a", "cut off"),
        (b"\x0a\x05t", "cut off"),
        (b"\x28\x80", "cut off"),
        (b"\x0d\x00\x00\x00", "cut off"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "cut off"),
        (b"\x28" + b"\xff" * 10 + b"\x01", "longer than 64 bits"),
        (b"\x28" + b"\xff" * 9 + b"\x02", "longer than 64 bits"),
        (b"\x00\x01", "field number"),
        (tag(2**29, 0) + b"\x00", "field number"),
        (b"\x0e\x01", "wire type"),
        (b"\x0f\x01", "wire type"),
        (tag(20, 4), "not open"),
        (tag(20, 3) + tag(21, 4), "not open"),
        (tag(20, 3) + b"\x08\x01", "cut off"),
        (span(15, span(1, b"key") + b"\x12\x05v"), "cut off"),
        (span(15, b"\x12\x05v"), "cut off"),
    ],
)
def test_broken_frame_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    readers: tuple[Callable[[bytes], object], ...] = (decode_task_message, view_task_message, rewrite_task_message)
    for read in readers:
        with pytest.raises(InvalidMessageError, match=reason):
            read(b"\x0a\x01t" + data)


@pytest.mark.parametrize(
    ("number", "name"),
    [(1, "type"), (3, "id"), (4, "queue"), (7, "error_msg"), (10, "unique_key"), (14, "group_key")],
)
def test_invalid_utf8_is_refused_even_if_a_later_value_replaces_it(number: int, name: str) -> None:
    data = span(number, b"text\xff") + span(number, b"text")
    for read in (decode_task_message, rewrite_task_message):
        with pytest.raises(InvalidMessageError, match=f"{name} contains invalid UTF-8"):
            read(data)
    if name in VIEWED:
        with pytest.raises(InvalidMessageError, match=f"{name} contains invalid UTF-8"):
            view_task_message(data)
    else:
        assert view_task_message(data).data is data


def test_groups_nest_as_deep_as_in_go_and_no_deeper() -> None:
    assert decode_task_message(nested_groups(10_001)) == TaskMessage()
    for depth in (10_002, 1_000_000):
        with pytest.raises(InvalidMessageError, match="too deep"):
            decode_task_message(nested_groups(depth))


def test_known_field_with_a_long_tag_is_read() -> None:
    assert decode_task_message(b"\xa2\x00\x05hello").queue == "hello"


def test_number_of_64_bits_is_cut_to_32_as_in_go() -> None:
    assert decode_task_message(b"\x28" + varint(2**32 + 5)).retry == 5
    assert decode_task_message(b"\x28" + varint(2**31)).retry == -(2**31)


def test_names_that_share_a_place_in_the_memory_of_names_stay_apart() -> None:
    names = [f"{prefix}:{number}" for prefix in ("email", "image", "a", "\N{SNOWMAN}") for number in range(1_000)]
    for name in names + names[::-1]:
        msg = decode_task_message(encode_task_message(TaskMessage(type=name, queue=name[::-1])))
        assert (msg.type, msg.queue) == (name, name[::-1])


def test_headers_keep_their_order() -> None:
    msg = TaskMessage(headers={"b": "1", "a": "2", "": ""})
    assert list(decode_task_message(encode_task_message(msg)).headers.items()) == [("b", "1"), ("a", "2"), ("", "")]


def test_big_message_is_read_whole() -> None:
    msg = TYPICAL.replace(payload=b"\xff" * 20_000_000, error_msg="\N{SNOWMAN}" * 100_000)
    data = encode_task_message(msg)
    assert decode_task_message(data) == msg
    assert view_task_message(data).id == msg.id
    assert decode_task_message(rewrite_task_message(data, retried=1)) == msg.replace(retried=1)


def test_view_cannot_be_changed_or_made_by_hand() -> None:
    view = view_task_message(encode_task_message(TYPICAL))
    assert repr(view) == f"TaskView(type={TYPICAL.type!r}, id={TYPICAL.id!r}, queue={TYPICAL.queue!r})"
    for name in (*VIEWED, "data", "has_headers", "has_fastq_headers"):
        with pytest.raises(AttributeError):
            setattr(view, name, getattr(view, name))
        with pytest.raises(AttributeError):
            delattr(view, name)
    with pytest.raises(TypeError):
        TaskView()
    with pytest.raises(TypeError):
        view_task_message(bytearray())  # type: ignore[arg-type]  # a view keeps its bytes: they must not change


@given(messages)
def test_view_shows_what_decoding_reads(msg: TaskMessage) -> None:
    view = view_task_message(encode_task_message(msg))
    assert [getattr(view, name) for name in VIEWED] == [getattr(msg, name) for name in VIEWED]


@pytest.mark.parametrize(
    ("data", "has_headers", "has_fastq_headers"),
    [
        pytest.param(b"", False, False, id="none"),
        pytest.param(span(15, b""), True, False, id="an empty one"),
        pytest.param(span(15, span(1, b"trace") + span(2, b"fastq-")), True, False, id="of others"),
        pytest.param(span(15, span(1, b"fastq-") + span(2, b"1")), True, True, id="our own"),
        pytest.param(span(15, span(2, b"1") + span(1, b"fastq-reply")), True, True, id="the value first"),
        pytest.param(span(15, span(1, b"fastq")), True, False, id="too short"),
        pytest.param(span(15, span(1, b"Fastq-Reply")), True, False, id="another case"),
        pytest.param(span(15, span(1, b"a")) + span(15, span(1, b"fastq-a")), True, True, id="the second"),
        pytest.param(span(15, span(1, b"fastq-a")) + span(15, span(1, b"a")), True, True, id="the first"),
        pytest.param(span(15, span(1, b"fastq-a") + span(1, b"a")), True, False, id="two keys, the last counts"),
        pytest.param(span(15, span(3, b"fastq-a") + tag(1, 0) + b"\x01"), True, False, id="unknown fields"),
        pytest.param(tag(15, 0) + b"\x01", False, False, id="a number in its place"),
        pytest.param(span(15, span(1, b"fastq-a"), width=3), True, True, id="a long tag"),
    ],
)
def test_view_tells_whether_there_are_headers_and_whether_any_is_our_own(
    data: bytes, has_headers: bool, has_fastq_headers: bool
) -> None:
    view, headers = view_task_message(b"\x0a\x01t" + data), decode_task_message(b"\x0a\x01t" + data).headers
    assert (view.has_headers, view.has_fastq_headers) == (has_headers, has_fastq_headers)
    assert (bool(headers), any(key.startswith("fastq-") for key in headers)) == (has_headers, has_fastq_headers)


def test_view_takes_a_header_that_decoding_refuses() -> None:
    view = view_task_message(span(15, span(1, b"fastq-\xff")))
    assert (view.has_headers, view.has_fastq_headers) == (True, True)
