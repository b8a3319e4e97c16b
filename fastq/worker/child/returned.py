"""Results of handlers as bytes to keep: a task is done even if its result cannot be encoded."""

import logging
import time
from typing import Final

import orjson

from fastq.common.encoding import Fault, encode_leniently, marker
from fastq.log.limit import LogLimit
from fastq.running import MAX_RESULT_BYTES
from fastq.wire.messages import TaskMessage

SHOWN: Final = 5
"""How many faults of one result are named in the log."""

_log = logging.getLogger("fastq.worker")
_limit: Final = LogLimit[str]()


def encode_returned(message: TaskMessage, value: object) -> bytes:
    """Return the result of a handler as bytes; parts that cannot be encoded are replaced and logged."""
    if type(value) is bytes and len(value) <= MAX_RESULT_BYTES:
        return value
    data, faults = _encode(value)
    if faults:
        _warn(message, faults)
    return data


def _encode(value: object) -> tuple[bytes, list[Fault]]:
    if isinstance(value, bytes | bytearray):
        data, faults = bytes(value), list[Fault]()
    elif isinstance(value, memoryview):
        try:
            data, faults = value.tobytes(), []
        except ValueError as error:  # a memoryview that was released
            data, faults = _marked(value, f"cannot be read: {error}")
    else:
        data, faults = encode_leniently(value)
    if len(data) > MAX_RESULT_BYTES:
        return _marked(value, f"takes {len(data)} bytes, over the limit of {MAX_RESULT_BYTES}; store it elsewhere")
    return data, faults


def _marked(value: object, why: str) -> tuple[bytes, list[Fault]]:
    return orjson.dumps(marker(value, why)), [Fault("$", why)]


def _warn(message: TaskMessage, faults: list[Fault]) -> None:
    now_s = time.monotonic()
    for kind, count in _limit.ended(now_s):
        _log.warning("%d more results of %s could not be kept as they were", count, kind or "other types")
    if not _limit.allows(message.type, now_s):
        return
    named = ", ".join(f"{fault} ({'null' if fault.is_number else 'a marker'} is kept)" for fault in faults[:SHOWN])
    more = f", and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    _log.warning(
        "task %s (%s, queue %s) is done, but its result cannot be kept as it is: %s%s",
        message.id, message.type, message.queue, named, more,
        extra={
            "about": {"task_id": message.id, "task_type": message.type, "queue": message.queue}, "is_limited": True,
        },
    )  # fmt: skip
