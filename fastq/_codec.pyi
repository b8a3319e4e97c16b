from collections.abc import Mapping
from typing import ClassVar, final

@final
class TaskMessage:
    type: str
    payload: bytes
    id: str
    queue: str
    retry: int
    retried: int
    error_msg: str
    last_failed_at: int
    timeout: int
    deadline: int
    unique_key: str
    group_key: str
    retention: int
    completed_at: int
    headers: Mapping[str, str]
    def __init__(
        self,
        type: str = "",
        payload: bytes = b"",
        id: str = "",
        queue: str = "",
        retry: int = 0,
        retried: int = 0,
        error_msg: str = "",
        last_failed_at: int = 0,
        timeout: int = 0,
        deadline: int = 0,
        unique_key: str = "",
        group_key: str = "",
        retention: int = 0,
        completed_at: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None: ...
    def replace(self, **changes: str | bytes | int | Mapping[str, str]) -> TaskMessage: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]  # mutable, as a dataclass

def decode_task_message(data: bytes | bytearray | memoryview) -> TaskMessage: ...
def encode_task_message(msg: TaskMessage) -> bytes: ...
