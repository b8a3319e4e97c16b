from typing import Final, final

from fastq.pool.shared.control import Channel
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.layout import Layout
from fastq.pool.shared.ring import Memory
from fastq.pool.shared.slots import Slots

MAX_RESULT: Final[int]

@final
class Estimate: ...

@final
class BatchRule:
    size: int
    wait_ns: int
    max_bytes: int
    def __init__(self, size: int, wait: float = 0.0, max_bytes: int = 1_000_000) -> None: ...

@final
class Submission:
    key: object
    data: bytes
    type: str
    is_async: bool
    is_awaited: bool
    is_threaded: bool
    timeout_ns: int
    deadline_unix_ns: int
    seq: int
    queue: ChildQueue | None
    batch: BatchRule | None
    leader: Submission | None
    called: int
    gathered_ns: int
    @property
    def unit(self) -> Submission: ...
    @property
    def is_among_others(self) -> bool: ...
    def __init__(
        self,
        key: object,
        data: bytes,
        type: str = "",
        *,
        timeout: float = 0.0,
        deadline: float = 0.0,
        is_async: bool = False,
    ) -> None: ...

@final
class Event:
    kind: EventKind
    submission: Submission
    data: bytes
    ran_ns: int
    def __init__(self, kind: EventKind, submission: Submission, data: bytes = b"", ran_ns: int = 0) -> None: ...

@final
class ChildQueue:
    slots: Slots
    open: bool
    left: int
    async_count: int
    thread_count: int
    threads: int
    finished: int
    def __init__(self, memory: Memory, shape: Layout, channel: Channel, max_tasks: int) -> None: ...
    @property
    def pending(self) -> int: ...
    @property
    def is_over_memory(self) -> bool: ...
    @property
    def wants_to_leave(self) -> bool: ...
    @property
    def heard(self) -> int: ...
    @property
    def rss(self) -> int: ...
    @property
    def in_step(self) -> int: ...
    def set_open(self, accepts: bool) -> None: ...
    def wake(self) -> None: ...
    def tell_to_exit(self) -> None: ...
    def announce_stop(self) -> None: ...
    def receive_segment(self, size: int, number: int) -> bytes: ...
    def take_back_all(self) -> list[Submission]: ...
    def remaining(self) -> list[Submission]: ...
    def find(self, seq: int) -> Submission | None: ...
    def runs_on(self, submission: Submission) -> bool: ...
    def oldest_waiting(self) -> int: ...
    def is_deaf(self, now: int, patience_ns: int) -> bool: ...
    def end(self, submission: Submission, kind: EventKind, data: bytes) -> Event: ...
