from typing import final

from fastq.server.inflight._tasks import InFlightTask

@final
class TaskLines:
    def __init__(self, server: str) -> None: ...
    def lines_of(self, tasks: list[InFlightTask], end: str | None, time: str) -> str: ...
