"""Throws hostile bytes at the codec: ``python -m tests.fuzz.fuzz_codec --count 1000000 --seed 1``.

Every input must be read as the ``protobuf`` package reads it (by Go's rules where that is not Go's own package), and
the view and the rewriting must agree with the decoding.
"""

import argparse
import ctypes
import sys
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from fastq.wire.codec import (
    InvalidMessageError,
    TaskMessage,
    decode_task_message,
    encode_task_message,
    rewrite_task_message,
    view_task_message,
)
from fastq.wire.proto import asynq_pb2 as pb
from tests.fuzz.go_rules import HEADERS, TEXT_FIELDS, fields, plain
from tests.fuzz.inputs import hostile_inputs

T = TypeVar("T")
VIEWED = ("type", "id", "queue", "retry", "retried", "timeout", "deadline", "retention", "unique_key", "group_key")
CHANGES: tuple[dict[str, Any], ...] = (
    {"retried": 3, "error_msg": "dial tcp: refusé", "last_failed_at": 1_700_000_000},
    {"retried": 0, "error_msg": "", "last_failed_at": 0},
    {"completed_at": 2**63 - 1},
    {"retry": -1, "payload": b"\\x00\\xff", "type": "fastq:undecodable"},
    {"headers": {"trace": "abc"}, "queue": "", "group_key": "g"},
    {"headers": {}, "id": "i", "unique_key": "u", "timeout": 1, "deadline": 2, "retention": 3},
    {},
)


def from_upb(data: bytes) -> TaskMessage | None:
    """Return what the ``protobuf`` package reads, None if it refuses."""
    try:
        msg = pb.TaskMessage.FromString(data)
    except DecodeError:
        return None
    values = {descriptor.name: getattr(msg, descriptor.name) for descriptor in msg.DESCRIPTOR.fields}
    return TaskMessage(**values | {"headers": dict(msg.headers)})


def to_upb(msg: TaskMessage) -> bytes:
    values = {descriptor.name: getattr(msg, descriptor.name) for descriptor in pb.TaskMessage.DESCRIPTOR.fields}
    return pb.TaskMessage(**values).SerializeToString()


def attempt(read: Callable[..., T], data: bytes | memoryview, **changes: Any) -> tuple[T | None, str]:
    """Return what ``read`` makes of ``data``, or None and the refusal."""
    try:
        return read(data, **changes), ""
    except InvalidMessageError as error:
        return None, str(error)


def bare(data: bytes) -> memoryview:
    """Return ``data`` with nothing behind it, where bytes have a NUL: a sanitizer sees a read that goes too far."""
    return memoryview((ctypes.c_ubyte * len(data)).from_buffer_copy(data))


def check_decoding(data: bytes, msg: TaskMessage | None) -> None:
    upb = from_upb(data)
    if upb == msg:
        return
    by_go, rules = plain(data)
    assert rules, f"protobuf reads {upb}"
    assert msg == (None if by_go is None else from_upb(by_go)), rules


def check_encoding(msg: TaskMessage) -> None:
    data = encode_task_message(msg)
    # Fields may be compared in any order, because upb sorts the headers.
    assert sorted(fields(data)) == sorted(fields(to_upb(msg)))
    assert [number for number, _, _ in fields(data)] == sorted(number for number, _, _ in fields(data))
    again = decode_task_message(bytearray(data))
    assert again == msg
    assert list(again.headers) == list(msg.headers)


def check_view(data: bytes, msg: TaskMessage | None, refusal: str) -> None:
    view, view_refusal = attempt(view_task_message, data)
    if view is None:
        assert msg is None, view_refusal
        return
    assert view.data is data
    if msg is None:
        assert "error_msg contains" in refusal or "headers contains" in refusal, refusal
        return
    for name in VIEWED:
        assert getattr(view, name) == getattr(msg, name), name
    assert view.has_headers is bool(msg.headers)
    assert view.has_fastq_headers is any(key.startswith("fastq-") for key in msg.headers)


def check_rewriting(data: bytes, msg: TaskMessage | None, changes: dict[str, Any]) -> None:
    out, refusal = attempt(rewrite_task_message, data, **changes)
    if out is None:
        assert msg is None, refusal
        return
    assert msg is not None
    changed = msg.replace(**changes)
    assert decode_task_message(out) == changed
    numbers = {field.number for field in pb.TaskMessage.DESCRIPTOR.fields if field.name in changes}

    def is_new(number: int, wire_type: int) -> bool:
        return number in numbers and wire_type == (2 if number in TEXT_FIELDS or number == HEADERS else 0)

    kept = [field for field in fields(data) if not is_new(field[0], field[1])]
    assert kept == [field for field in fields(out) if not is_new(field[0], field[1])]
    written = b"".join(field[2] for field in fields(out) if is_new(field[0], field[1]))
    assert written == encode_task_message(TaskMessage().replace(**changes))
    canonical = encode_task_message(msg)
    assert rewrite_task_message(canonical, **changes) == encode_task_message(changed)


def check(data: bytes, changes: dict[str, Any]) -> bool:
    """Raise AssertionError if the codec misreads ``data``; tell whether it was accepted."""
    msg, refusal = attempt(decode_task_message, data)
    assert attempt(decode_task_message, bare(data)) == (msg, refusal)
    check_decoding(data, msg)
    check_view(data, msg, refusal)
    check_rewriting(data, msg, changes)
    if msg is not None:
        check_encoding(msg)
    return msg is not None


def fuzz(seed: int, count: int, every: int = 0) -> Counter[str]:
    """Check ``count`` inputs and return how many were accepted; print progress each ``every`` inputs."""
    seen: Counter[str] = Counter()
    rng = Random(seed)
    start = time.monotonic()
    for i, data in enumerate(hostile_inputs(seed, count), 1):
        changes = rng.choice(CHANGES)
        try:
            seen["accepted" if check(data, changes) else "refused"] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, input {i}: {data.hex()} with {changes}: {error}") from error
        if every and i % every == 0:
            sys.stdout.write(f"{i} of {count} inputs, {dict(seen)}, {i / (time.monotonic() - start):.0f}/s\n")
            sys.stdout.flush()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description="fuzz the codec of TaskMessage")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    seen = fuzz(args.seed, args.count, every=max(args.count // 10, 1))
    sys.stdout.write(f"no difference in {args.count} inputs of seed {args.seed}: {dict(seen)}\n")


if __name__ == "__main__":
    main()
