from collections.abc import Callable
from typing import final

from fastq.pool.protocol import Event, Submission
from fastq.server.inflight._held import HeldTask, HeldTasks
from fastq.server.inflight.result import Result

@final
class Intake:
    def __init__(self, held: HeldTasks, is_async: Callable[[str], bool]) -> None: ...
    def take(
        self, queue: str, ids: list[bytes], messages: list[bytes], now_s: float
    ) -> tuple[list[HeldTask], list[int]]: ...
    def submission(self, task: HeldTask) -> Submission: ...

def to_submit(tasks: list[HeldTask]) -> list[Submission]: ...
def split_done(events: list[Event]) -> tuple[list[Result], list[Event]]: ...
