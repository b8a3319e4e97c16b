"""Encoding and decoding of TaskMessage, asynq's message of a task.

Compiled code does the work (``fastq._codec``); other modules import its functions from here.
"""

import re
from typing import Final

try:
    from fastq._codec import (
        TaskMaker,
        TaskMessage,
        TaskView,
        decode_task_message,
        decode_task_messages,
        encode_task_message,
        rewrite_task_message,
        view_task_message,
    )
except ImportError as error:  # pragma: no cover
    raise ImportError("fastq's compiled codec is missing: run `python setup.py build_ext --inplace`") from error
from fastq.errors import InvalidMessageError

__all__ = [
    "InvalidMessageError",
    "TaskMaker",
    "TaskMessage",
    "TaskView",
    "clean_text",
    "decode_task_message",
    "decode_task_messages",
    "encode_task_message",
    "rewrite_task_message",
    "view_task_message",
]

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Return ``text`` with U+FFFD for each surrogate, so that it can be written as UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
