"""The queues of a server that have lanes; for these, the twins of scripts are sent."""

from collections.abc import Sequence
from typing import Any, Final

from fastq.broker.operation import Operation
from fastq.broker.operations.lanes import OF_SERVERS, in_lanes

_OF_QUEUE: Final = "asynq:{"


class LaneQueues(set[str]):
    """The queues that have rules for lanes; if nobody uses lanes it is empty, and operations are sent as they are.

    Of the ``unknown`` Redis has not told yet whether they have rules: any group of theirs may be a lane. So none of
    their tasks is taken, and twins are sent: where there are no rules, they do the same as the plain scripts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unknown: set[str] = set()

    def twins(self, operations: Sequence[Operation[Any]]) -> list[Operation[Any]]:
        """Return the operations, each replaced by its twin if it has one and its queue has lanes."""
        return [self._twin(operation) if operation.name in OF_SERVERS else operation for operation in operations]

    def _twin(self, operation: Operation[Any]) -> Operation[Any]:
        queue = operation.keys[0].removeprefix(_OF_QUEUE).partition("}:")[0]
        return in_lanes(operation, queue) if queue in self or queue in self.unknown else operation
