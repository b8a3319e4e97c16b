from collections.abc import Callable
from typing import final

from fastq.broker.operations.finish import Completed, Done
from fastq.pool.main.protocol import BatchRule, Event, Submission
from fastq.server.inflight.tally import Tally
from fastq.server.inflight.tasks import InFlightTask, InFlightTasks

@final
class SubmissionMaker:
    def __init__(
        self, tasks: InFlightTasks, look_up: Callable[[str, str], tuple[int, Tally, int | None, BatchRule | None]]
    ) -> None: ...
    def take(
        self, queue: str, ids: list[bytes], messages: list[bytes], now_s: float
    ) -> tuple[list[InFlightTask], list[int]]: ...
    def submission(self, task: InFlightTask) -> Submission: ...

def submissions_of(tasks: list[InFlightTask]) -> list[Submission]: ...
def success_of(task: InFlightTask, result: bytes | None, now_s: int) -> Done | Completed: ...
def split_done(events: list[Event], now_s: int) -> tuple[list[InFlightTask], list[Event]]: ...
