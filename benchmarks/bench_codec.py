"""The codec against the ``protobuf`` package, bare and wrapped in a dataclass, on what a client typically writes.

Both sides do the same work: from Python values to bytes, or from bytes to the fields read. ``test_ratios`` runs the
sides in turn, so that a busy machine slows them alike, and prints the median of the ratios.
"""

import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from types import FunctionType
from typing import TypeVar

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fastq._ids import new_task_id, new_task_ids
from fastq.wire.codec import (
    TaskMessage,
    TaskView,
    decode_task_message,
    encode_task_message,
    rewrite_task_message,
    view_task_message,
)
from fastq.wire.proto import asynq_pb2 as pb

T = TypeVar("T")
LOOPS = 2_000
ROUNDS = 50

TYPE, QUEUE, ID, PAYLOAD = "email:welcome", "default", "9e2b1f0c-5b0a-4a38-8f0e-0f4b5c6d7e8f", bytes(range(100))
MESSAGE = TaskMessage(type=TYPE, payload=PAYLOAD, id=ID, queue=QUEUE, retry=25, timeout=1800)
DATA = encode_task_message(MESSAGE)
# Eight types in three queues with two timeouts, and no two alike: what fastq remembers from message to message is of
# less use here.
BATCH = [
    encode_task_message(
        MESSAGE.replace(
            type=f"{('email', 'image')[i % 2]}:{('send', 'resize', 'retry', 'drop')[i % 4]}",
            queue=("default", "critical", "low")[i % 3],
            id=new_task_id(),
            timeout=(1800, 3600)[i % 2],
            deadline=1_700_000_000 + i,
        )
    )
    for i in range(500)
]


@dataclass(slots=True)
class Wrapped:
    """The fields of a message of the ``protobuf`` package, as code that hides the package would keep them."""

    type: str = ""
    payload: bytes = b""
    id: str = ""
    queue: str = ""
    retry: int = 0
    retried: int = 0
    error_msg: str = ""
    timeout: int = 0
    deadline: int = 0
    unique_key: str = ""
    last_failed_at: int = 0
    retention: int = 0
    completed_at: int = 0
    group_key: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def wrap(data: bytes) -> Wrapped:
    """Decode with ``protobuf`` into the dataclass."""
    m = pb.TaskMessage.FromString(data)
    return Wrapped(
        m.type,
        m.payload,
        m.id,
        m.queue,
        m.retry,
        m.retried,
        m.error_msg,
        m.timeout,
        m.deadline,
        m.unique_key,
        m.last_failed_at,
        m.retention,
        m.completed_at,
        m.group_key,
        dict(m.headers),
    )


def unwrap(w: Wrapped) -> bytes:
    """Encode the dataclass with ``protobuf``."""
    return pb.TaskMessage(
        type=w.type,
        payload=w.payload,
        id=w.id,
        queue=w.queue,
        retry=w.retry,
        retried=w.retried,
        error_msg=w.error_msg,
        timeout=w.timeout,
        deadline=w.deadline,
        unique_key=w.unique_key,
        last_failed_at=w.last_failed_at,
        retention=w.retention,
        completed_at=w.completed_at,
        group_key=w.group_key,
        headers=w.headers,
    ).SerializeToString()


Decoded = TaskMessage | pb.TaskMessage | Wrapped
Viewed = TaskView | pb.TaskMessage | Wrapped


def decode_loop(decode: Callable[[bytes], Decoded]) -> None:
    for _ in repeat(None, LOOPS):
        m = decode(DATA)
        _ = m.type
        _ = m.payload
        _ = m.id
        _ = m.queue
        _ = m.retry
        _ = m.timeout


def view_loop(view: Callable[[bytes], Viewed]) -> None:
    for _ in repeat(None, LOOPS):
        m = view(DATA)
        _ = m.id
        _ = m.queue
        _ = m.retry
        _ = m.retried
        _ = m.timeout
        _ = m.deadline
        _ = m.retention
        _ = m.unique_key


def batch_loop(view: Callable[[bytes], Viewed]) -> None:
    for _ in range(LOOPS // len(BATCH)):
        for m in [view(data) for data in BATCH]:
            _ = m.id
            _ = m.queue
            _ = m.retry
            _ = m.retried
            _ = m.timeout
            _ = m.deadline
            _ = m.retention
            _ = m.unique_key


def encode_fastq() -> None:
    for _ in repeat(None, LOOPS):
        encode_task_message(
            TaskMessage(type=TYPE, payload=PAYLOAD, id=ID, queue=QUEUE, retry=25, timeout=1800),
        )


def encode_ready_fastq() -> None:
    for _ in repeat(None, LOOPS):
        encode_task_message(MESSAGE)


def encode_upb() -> None:
    message = pb.TaskMessage
    for _ in repeat(None, LOOPS):
        message(type=TYPE, payload=PAYLOAD, id=ID, queue=QUEUE, retry=25, timeout=1800).SerializeToString()


def encode_dataclass() -> None:
    for _ in repeat(None, LOOPS):
        unwrap(Wrapped(type=TYPE, payload=PAYLOAD, id=ID, queue=QUEUE, retry=25, timeout=1800))


def rewrite_fastq() -> None:
    for _ in repeat(None, LOOPS):
        rewrite_task_message(DATA, retried=1, error_msg="boom", last_failed_at=1_700_000_000)


def rewrite_upb() -> None:
    message = pb.TaskMessage
    for _ in repeat(None, LOOPS):
        m = message.FromString(DATA)
        m.retried = 1
        m.error_msg = "boom"
        m.last_failed_at = 1_700_000_000
        m.SerializeToString()


def ids_bulk() -> None:
    new_task_ids(LOOPS)


def ids_single() -> None:
    for _ in repeat(None, LOOPS):
        new_task_id()


def ids_uuid() -> None:
    for _ in repeat(None, LOOPS):
        str(uuid.uuid4())


def with_own_code(loop: Callable[[T], None], argument: T) -> Callable[[], None]:
    """Return ``loop`` for one argument, with a code object of its own: the interpreter tunes each to what it sees."""
    assert isinstance(loop, FunctionType)
    return partial(FunctionType(loop.__code__.replace(), loop.__globals__), argument)


SIDES: dict[str, dict[str, Callable[[], None]]] = {
    "decode": {
        "fastq": with_own_code(decode_loop, decode_task_message),
        "upb": with_own_code(decode_loop, pb.TaskMessage.FromString),
        "upb in a dataclass": with_own_code(decode_loop, wrap),
    },
    "encode": {"fastq": encode_fastq, "upb": encode_upb, "upb in a dataclass": encode_dataclass},
    "encode a ready message": {"fastq": encode_ready_fastq, "upb": encode_upb},
    "view": {
        "fastq": with_own_code(view_loop, view_task_message),
        "upb": with_own_code(view_loop, pb.TaskMessage.FromString),
        "upb in a dataclass": with_own_code(view_loop, wrap),
    },
    "view a batch of 500": {
        "fastq": with_own_code(batch_loop, view_task_message),
        "upb": with_own_code(batch_loop, pb.TaskMessage.FromString),
    },
    "rewrite": {"fastq": rewrite_fastq, "upb": rewrite_upb},
    "ids": {"fastq": ids_bulk, "fastq, one by one": ids_single, "str(uuid4())": ids_uuid},
}
CASES = [(topic, side) for topic, sides in SIDES.items() for side in sides]


def ns_each(loop: Callable[[], None]) -> float:
    start = time.perf_counter_ns()
    loop()
    return (time.perf_counter_ns() - start) / LOOPS


@pytest.mark.parametrize(("topic", "side"), CASES, ids=[f"{topic}-{side}" for topic, side in CASES])
def test_speed(benchmark: BenchmarkFixture, topic: str, side: str) -> None:
    benchmark.group = topic
    benchmark.extra_info["operations"] = LOOPS
    benchmark(SIDES[topic][side])


def test_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("\n\nns each, median (least), and how many times fastq's")
        for topic, sides in SIDES.items():
            rounds = [{side: ns_each(loop) for side, loop in sides.items()} for _ in range(ROUNDS)]
            for side in sides:
                times = [times[side] for times in rounds]
                ratio = statistics.median(times[side] / times["fastq"] for times in rounds)
                print(f"{topic:24}{side:22}{statistics.median(times):8.0f} ({min(times):.0f}){ratio:10.2f}")
