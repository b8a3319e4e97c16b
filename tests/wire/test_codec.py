import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from fastq.wire.codec import (
    InvalidMessageError,
    TaskMessage,
    decode_task_message,
    encode_task_message,
    rewrite_task_message,
    view_task_message,
)
from fastq.wire.proto import asynq_pb2 as pb
from tests.fuzz.fuzz_codec import check, fuzz, to_upb
from tests.fuzz.go_rules import fields
from tests.fuzz.inputs import GOLDEN, golden_messages, span
from tests.fuzz.strategies import TYPICAL, messages

ENCODED = [case for case in GOLDEN["cases"] if case["message"] == "TaskMessage"]
DECODED = [case for case in GOLDEN["decode_cases"] if case["message"] == "TaskMessage"]
INT32 = range(-(2**31), 2**31)


def golden_name(case: dict[str, Any]) -> str:
    return str(case["name"])


def golden_message(values: dict[str, Any]) -> TaskMessage:
    """Build a message from the golden file's form; invalid UTF-8, given in hex, becomes surrogates."""
    texts = {
        name: bytes.fromhex(value["hex"]).decode(errors="surrogateescape")
        for name, value in values.items()
        if isinstance(value, dict) and "hex" in value
    }
    payload = bytes.fromhex(values["payload"] or "")
    return TaskMessage(**values | texts | {"payload": payload, "headers": values["headers"] or {}})


@pytest.mark.parametrize("case", ENCODED, ids=golden_name)
def test_codec_writes_and_reads_what_go_writes(case: dict[str, Any]) -> None:
    given_message = golden_message(case["fields"])
    if "encode_error" in case or any(getattr(given_message, name) not in INT32 for name in ("retry", "retried")):
        # Go cuts a number that does not fit; here it is an error.
        with pytest.raises(InvalidMessageError):
            encode_task_message(given_message)
        given_message = golden_message(case.get("decoded", {**case["fields"], "error_msg": "", "id": ""}))
    written = encode_task_message(given_message)
    if "encoded" in case:
        wanted = [bytes.fromhex(text) for text in case.get("all_observed_encodings", [case["encoded"]])]
        assert sorted(fields(written)) in [sorted(fields(data)) for data in wanted]
        if len(wanted) == 1:
            assert written == wanted[0]
        assert decode_task_message(wanted[0]) == golden_message(case["decoded"])


@pytest.mark.parametrize("case", DECODED, ids=golden_name)
def test_decoder_takes_and_refuses_what_go_does(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["input"])
    if "error" in case:
        with pytest.raises(InvalidMessageError):
            decode_task_message(data)
    else:
        assert decode_task_message(data) == golden_message(case["decoded"])


def test_generated_module_has_the_fields_of_the_golden_file() -> None:
    names = {field.name for field in pb.TaskMessage.DESCRIPTOR.fields}
    assert names == set(ENCODED[0]["fields"])


@given(messages)
def test_codec_writes_and_reads_what_protobuf_does(msg: TaskMessage) -> None:
    data = encode_task_message(msg)
    assert sorted(fields(data)) == sorted(fields(to_upb(msg)))
    assert decode_task_message(data) == decode_task_message(to_upb(msg)) == msg
    check(data, {"retried": 1})


def test_codec_agrees_with_protobuf_on_hostile_bytes() -> None:
    seen = fuzz(seed=20, count=30_000)
    assert min(seen["accepted"], seen["refused"]) > 5_000


@pytest.mark.parametrize("data", golden_messages(), ids=range(len(golden_messages())))
def test_every_prefix_of_a_golden_message_is_read_as_protobuf_does(data: bytes) -> None:
    for size in range(min(len(data), 300)):
        check(data[:size], {"retried": 1, "error_msg": "boom"})


def test_codec_leaks_no_memory() -> None:
    good = [data for data in golden_messages() if len(data) < 4096]
    good += [
        encode_task_message(TYPICAL.replace(headers={"trace-id": "\N{SNOWMAN}abc", "other": "xyz"}, deadline=2**40))
    ]
    bad = [data[: len(data) // 2] + b"\xff" for data in good]
    bad += [span(15, span(1, b"key") + span(2, b"text\xff")), span(3, b"text\xff"), span(3, b"text") + b"\x00"]

    def refused(call: Callable[[], object]) -> None:
        try:
            call()
        except (InvalidMessageError, TypeError, AttributeError):
            return

    def work() -> None:
        for data in good + bad:
            refused(lambda data=data: decode_task_message(data))  # type: ignore[misc]  # binds the loop's value
            refused(lambda data=data: decode_task_message(bytearray(data)))  # type: ignore[misc]  # as above
            refused(lambda data=data: view_task_message(data))  # type: ignore[misc]  # as above
            refused(lambda data=data: rewrite_task_message(data, retried=1, headers={"a": "b"}))  # type: ignore[misc]  # as above
        refused(lambda: rewrite_task_message(b"", error_msg="\ud800", headers={"a": "b"}))
        refused(lambda: encode_task_message(TYPICAL.replace(headers={"a": 1})))  # type: ignore[dict-item]  # wrong on purpose
        refused(lambda: encode_task_message(TYPICAL.replace(retry=2**31)))
        encode_task_message(TYPICAL.replace(headers={"a": "b"}, payload=b"x"))

    for _ in range(3):
        work()

    def grown() -> int:
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(20):
            work()
        gc.collect()
        return abs(sys.getallocatedblocks() - before)

    assert min(grown() for _ in range(3)) < 20  # once something may come in for another thread of this process
