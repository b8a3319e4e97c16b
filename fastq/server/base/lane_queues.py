"""Which queues of a server have lanes; of these the twins of scripts are sent."""

from collections.abc import Sequence
from typing import Any, Final

from fastq.broker.operation import Operation
from fastq.broker.operations.lanes import OF_SERVERS, in_lanes

_OF_QUEUE: Final = "asynq:{"


class LaneQueues(set[str]):
    """The queues that have rules for lanes; empty, and then nothing is asked, unless somebody uses lanes.

    Until they ``are_known``, a group may be a lane, and a queue may have a limit: no task is taken, and twins are sent,
    which do as the plain scripts where there are no rules.
    """

    def __init__(self) -> None:
        super().__init__()
        self.are_known = True

    def twins(self, operations: Sequence[Operation[Any]]) -> list[Operation[Any]]:
        """Return operations with those of queues with lanes in place of which a twin is to be sent replaced by it."""
        return [self._twin(operation) if operation.name in OF_SERVERS else operation for operation in operations]

    def _twin(self, operation: Operation[Any]) -> Operation[Any]:
        queue = operation.keys[0].removeprefix(_OF_QUEUE).partition("}:")[0]
        return in_lanes(operation, queue) if queue in self or not self.are_known else operation
