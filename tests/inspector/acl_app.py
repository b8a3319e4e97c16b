"""The app of a worker that has no more rights than it needs."""

from collections.abc import Sequence

from fastq import GroupedTask, RunningTask, ServeMux, Task

mux = ServeMux()


@mux.handler("ok")
def ok(task: RunningTask) -> None:
    return None


@mux.handler("kept")
def kept(task: RunningTask) -> int:
    return 7


@mux.handler("fail")
def fail(task: RunningTask) -> None:
    raise ValueError("no")


def aggregate(group: str, tasks: Sequence[GroupedTask]) -> Task:
    return Task("ok")
