"""The part of a runner that is for batches, for runners that get none."""

from collections.abc import Awaitable, Sequence

from fastq.pool.shared.runner import Answer, TaskContext


class WithoutBatches:
    """A runner of single tasks."""

    def run_batch(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> list[Answer] | None:
        raise NotImplementedError

    def run_batch_async(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> Awaitable[list[Answer] | None]:
        raise NotImplementedError
