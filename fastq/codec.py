"""The wire of asynq's messages: the only module that others import for it.

TaskMessage is on the hot path and is read and written by ``fastq._codec``, which is compiled.
"""

try:
    from fastq._codec import TaskMessage, decode_task_message, encode_task_message
except ImportError as error:  # pragma: no cover
    raise ImportError("fastq's compiled codec is missing: run `python setup.py build_ext --inplace`") from error
from fastq.errors import InvalidMessageError

__all__ = ["InvalidMessageError", "TaskMessage", "decode_task_message", "encode_task_message"]
