import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.wire import records
from fastq.wire.codec import InvalidMessageError
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry, ServerInfoMessage, WorkerInfo
from fastq.wire.proto import asynq_pb2 as pb
from tests.fuzz.inputs import GOLDEN, span

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "ServerInfo": (ServerInfoMessage, records.encode_server_info, records.decode_server_info),
    "WorkerInfo": (WorkerInfo, records.encode_worker_info, records.decode_worker_info),
    "SchedulerEntry": (SchedulerEntry, records.encode_scheduler_entry, records.decode_scheduler_entry),
    "SchedulerEnqueueEvent": (
        SchedulerEnqueueEvent,
        records.encode_scheduler_enqueue_event,
        records.decode_scheduler_enqueue_event,
    ),
}
ENCODED = [case for case in GOLDEN["cases"] if case["message"] != "TaskMessage"]
SERVER = ServerInfoMessage("h", 1, "s", 10, {"default": 1}, False, "active", EPOCH, 0)

moments = st.none() | st.datetimes(
    min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)
)


def golden_id(case: dict[str, Any]) -> str:
    return f"{case['message']}-{case['name']}"


def golden_value(name: str, value: Any) -> Any:
    """Turn a value of the golden file into ours: times to microseconds, none for Go's zero time."""
    if name == "task_payload":
        return bytes.fromhex(value or "")
    if name in ("queues", "enqueue_options"):
        return (dict if name == "queues" else tuple)(value or ())
    if not isinstance(value, dict):
        return value
    if value["is_zero"]:
        return None
    if value["unix"] > 253_402_300_799:
        return datetime.max.replace(tzinfo=UTC)
    return EPOCH + timedelta(seconds=value["unix"], microseconds=value["nanos"] // 1000)


def golden_record(kind: str, values: dict[str, Any]) -> Any:
    return KINDS[kind][0](**{name: golden_value(name, value) for name, value in values.items()})


def fits_microseconds(values: dict[str, Any]) -> bool:
    times = [value for value in values.values() if isinstance(value, dict) and "unix" in value]
    return all(time["nanos"] % 1000 == 0 and time["unix"] <= 253_402_300_799 for time in times)


@pytest.mark.parametrize("case", ENCODED, ids=golden_id)
def test_record_is_written_and_read_as_go_does(case: dict[str, Any]) -> None:
    kind = case["message"]
    _, encode, decode = KINDS[kind]
    wanted = [bytes.fromhex(text) for text in case.get("all_observed_encodings", [case["encoded"]])]
    for data in wanted:
        assert decode(data) == golden_record(kind, case["decoded"])
    # The generated module holds every nanosecond of what Go wrote.
    again = getattr(pb, kind).FromString(wanted[0])
    assert len(again.SerializeToString()) == len(wanted[0])
    if len(wanted) == 1:
        assert again.SerializeToString() == wanted[0]
    written = encode(golden_record(kind, case["fields"]))
    if fits_microseconds(case["fields"]):
        assert getattr(pb, kind).FromString(written) == again
        assert len(wanted) > 1 or written == wanted[0]
    else:
        assert decode(written) == decode(wanted[0])


def test_time_given_twice_is_merged() -> None:
    (case,) = [case for case in GOLDEN["decode_cases"] if case["message"] == "ServerInfo"]
    info = records.decode_server_info(bytes.fromhex(case["input"]))
    assert info == golden_record("ServerInfo", case["decoded"])
    assert info.start_time == EPOCH + timedelta(seconds=1)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_time_is_the_epoch(kind: str) -> None:
    record = asdict(KINDS[kind][2](b""))
    times = [value for name, value in record.items() if name.endswith("_time") or name == "deadline"]
    assert set(times) == {EPOCH}


@given(moments, moments)
def test_times_survive_to_the_microsecond(first: datetime | None, second: datetime | None) -> None:
    entry = SchedulerEntry("i", "@every 1s", "t", b"\xff", ('Queue("x")',), first, second)
    assert records.decode_scheduler_entry(records.encode_scheduler_entry(entry)) == entry


def test_time_of_another_zone_is_the_same_moment() -> None:
    paris = timezone(timedelta(hours=1))
    info = replace(SERVER, start_time=datetime(2025, 11, 21, 1, tzinfo=paris))
    assert records.encode_server_info(info) == records.encode_server_info(
        replace(SERVER, start_time=datetime(2025, 11, 21, tzinfo=UTC))
    )


@pytest.mark.parametrize(
    ("seconds", "nanos", "moment"),
    [
        (2**63 - 1, 0, datetime.max.replace(tzinfo=UTC)),
        (-(2**63), 0, datetime.min.replace(tzinfo=UTC)),
        (1, -1, EPOCH + timedelta(microseconds=999_999)),
        (1, 1_500_000_000, EPOCH + timedelta(seconds=2, microseconds=500_000)),
    ],
)
def test_odd_time_is_read_as_the_nearest_one(seconds: int, nanos: int, moment: datetime) -> None:
    event = pb.SchedulerEnqueueEvent(task_id="i")
    event.enqueue_time.seconds, event.enqueue_time.nanos = seconds, nanos
    assert records.decode_scheduler_enqueue_event(event.SerializeToString()).enqueue_time == moment


def test_order_of_the_queues_does_not_change_the_bytes() -> None:
    names = [f"queue-{number}" for number in range(50)]
    one, other = (replace(SERVER, queues=dict.fromkeys(order, 1)) for order in (names, names[::-1]))
    assert records.encode_server_info(one) == records.encode_server_info(other)


@pytest.mark.parametrize(
    ("name", "value"),
    [("pid", 2**31), ("host", "\ud800"), ("queues", {"default": 2**40}), ("start_time", datetime(2025, 11, 21))],
)
def test_value_that_cannot_be_written_names_its_field(name: str, value: Any) -> None:
    with pytest.raises(InvalidMessageError, match=name):
        records.encode_server_info(replace(SERVER, **{name: value}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [b"\x0a\x05t", b"\x00\x01", b"\x0e\x01", b"\x0a", span(1, b"\xff")])
def test_record_that_go_refuses_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(InvalidMessageError, match=f"cannot decode {kind}"):
        KINDS[kind][2](data)


def test_text_that_is_not_utf8_is_refused_without_a_compiled_protobuf_too() -> None:
    program = """
from google.protobuf.internal import api_implementation
from fastq.errors import InvalidMessageError
from fastq.wire.records import decode_server_info
assert api_implementation.Type() == "python"
try:
    decode_server_info(b"\\x0a\\x01\\xff")
except InvalidMessageError as error:
    print(error)
"""
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.startswith("cannot decode ServerInfo: ")
