"""The wire of asynq's messages: the only module that others import for it.

TaskMessage is on the hot path and is read and written by compiled code (``fastq._codec``); the
other messages by the ``protobuf`` package (``fastq.wire.proto.convert``).
"""

import re

try:
    from fastq._codec import (
        TaskMessage,
        TaskView,
        decode_task_message,
        encode_task_message,
        rewrite_task_message,
        view_task_message,
    )
except ImportError as error:  # pragma: no cover
    raise ImportError("fastq's compiled codec is missing: run `python setup.py build_ext --inplace`") from error
from fastq.errors import InvalidMessageError
from fastq.wire.proto.convert import (
    decode_scheduler_enqueue_event,
    decode_scheduler_entry,
    decode_server_info,
    decode_worker_info,
    encode_scheduler_enqueue_event,
    encode_scheduler_entry,
    encode_server_info,
    encode_worker_info,
)

__all__ = [
    "InvalidMessageError",
    "TaskMessage",
    "TaskView",
    "clean_text",
    "decode_scheduler_enqueue_event",
    "decode_scheduler_entry",
    "decode_server_info",
    "decode_task_message",
    "decode_worker_info",
    "encode_scheduler_enqueue_event",
    "encode_scheduler_entry",
    "encode_server_info",
    "encode_task_message",
    "encode_worker_info",
    "rewrite_task_message",
    "view_task_message",
]

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Return ``text`` with U+FFFD for each surrogate, so that it can be written as UTF-8."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
