"""The queues of a server that have lanes; for these, the twins of scripts are sent (of ``done`` by the ack planner)."""

from collections.abc import Sequence
from typing import Any, Final

from fastq.broker.operation import Operation
from fastq.broker.operations.lanes import OF_SERVERS, in_lanes

_OF_QUEUE: Final = "asynq:{"


class LaneQueues(set[str]):
    """The queues that have rules for lanes; if nobody uses lanes, it is empty and operations are sent unchanged.

    Whether the ``unknown`` queues have rules is not known yet, so any of their groups may be a lane. None of their
    tasks is taken, and twins are sent. Without rules, a twin does the same as its plain script.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unknown: set[str] = set()

    def twins(self, operations: Sequence[Operation[Any]]) -> list[Operation[Any]]:
        """Return the operations, each replaced by its twin if it has one and its queue has lanes or may have some."""
        return [self._twin(operation) if operation.name in OF_SERVERS else operation for operation in operations]

    def _twin(self, operation: Operation[Any]) -> Operation[Any]:
        queue = operation.keys[0].removeprefix(_OF_QUEUE).partition("}:")[0]
        return in_lanes(operation, queue) if queue in self or queue in self.unknown else operation
