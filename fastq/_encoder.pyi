from collections.abc import Mapping
from typing import TypedDict, Unpack

from fastq._messages import TaskMessage

class _Changes(TypedDict, total=False):
    type: str | None
    payload: bytes | None
    id: str | None
    queue: str | None
    retry: int | None
    retried: int | None
    error_msg: str | None
    last_failed_at: int | None
    timeout: int | None
    deadline: int | None
    unique_key: str | None
    group_key: str | None
    retention: int | None
    completed_at: int | None
    headers: Mapping[str, str] | None

def encode_task_message(msg: TaskMessage) -> bytes: ...
def rewrite_task_message(data: bytes, **changes: Unpack[_Changes]) -> bytes: ...
