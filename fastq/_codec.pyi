from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NoReturn, TypedDict, TypeVar, Unpack, final

_T = TypeVar("_T")

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

@final
class TaskView:
    def __init__(self, *args: object, **kwargs: object) -> NoReturn: ...
    @property
    def data(self) -> bytes: ...
    @property
    def type(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def retry(self) -> int: ...
    @property
    def retried(self) -> int: ...
    @property
    def timeout(self) -> int: ...
    @property
    def deadline(self) -> int: ...
    @property
    def retention(self) -> int: ...
    @property
    def unique_key(self) -> str: ...
    @property
    def group_key(self) -> str: ...
    @property
    def has_headers(self) -> bool: ...
    @property
    def has_fastq_headers(self) -> bool: ...

FIELDS: tuple[str, ...]
VIEW_FIELDS: tuple[str, ...]

def check_task_message(data: bytes) -> None: ...
def decode_task_message(data: bytes | bytearray | memoryview) -> TaskMessage: ...
def decode_task_messages(data: list[bytes]) -> tuple[list[TaskMessage], set[str]]: ...
def view_task_message(data: bytes, /) -> TaskView: ...

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
def completed_message(view: TaskView, completed_at: int) -> bytes: ...

@final
class TaskMaker(Generic[_T]):
    def __init__(self, made: type[_T], options: Mapping[str, Any]) -> None: ...
    def make(self, message: TaskMessage, context: object) -> _T: ...
    def make_all(self, messages: list[TaskMessage], contexts: list[Any]) -> list[_T]: ...
    def fill(self, task: _T, message: TaskMessage, context: object) -> None: ...
