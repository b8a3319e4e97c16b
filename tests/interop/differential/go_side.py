"""Apply operations through real Go asynq."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interop.differential.goal import NOTHING
from tests.interop.differential.groups import NO_TASK, Due
from tests.interop.differential.operation import BEGIN, CANCEL, END, ENQUEUE, TEND, Operation, Outcome
from tests.interop.differential.reading import PAGED, told_by_go
from tests.interop.peer import SECOND_NS, GoPeer
from tests.interop.records import PeerError
from tests.waiting import PATIENCE_S

ERRORS = {
    "task already exists": "DuplicateTaskError",
    "task ID conflicts with another task": "TaskIDConflictError",
    "must contain one or more characters": "ValueError",
    "task cannot be nil": NO_TASK,
    "task typename cannot be empty": "ValueError",
    "task ID cannot be empty": "ValueError",
    "group key cannot be empty": "ValueError",
    "Unique TTL cannot be less than 1s": "ValueError",
    "number of days must be positive": "ValueError",
    "task not found": "TaskNotFoundError",
    "queue not found": "QueueNotFoundError",
    "does not exist": "QueueNotFoundError",
    "queue is not empty": "QueueNotEmptyError",
    "cannot remove queue with active tasks": "QueueNotEmptyError",
    "is already paused": "QueueStateError",
    "is not paused": "QueueStateError",
    "task is already": "TaskStateError",
    "cannot archive task in active state": "TaskStateError",
    "cannot delete task in active state": "TaskStateError",
    "cannot update task that is not in scheduled state": "TaskStateError",
}
"""Part of the text of Go's error → fastq's class for it."""
NOTHING_FOR_NS = SECOND_NS // 50
LIMIT_NS = round(PATIENCE_S) * SECOND_NS
LIMIT_S = 2 * PATIENCE_S


class GoSide:
    """Drive the peer, with a client and an inspector of its own for each sequence."""

    def __init__(self, peer: GoPeer, socket: Path) -> None:
        self._peer = peer
        self._socket = socket

    def renew_clients(self) -> None:
        self._peer.request("connect", socket=str(self._socket))

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply them one after the other, rounds of actors all at once."""
        if operations[0].method == TEND:
            made = self._peer.request(TEND, rounds=[_round(operation) for operation in operations], timeout=LIMIT_S)
            return [_made(*told) for told in zip(operations, made, strict=True)]
        return [self._apply(operation) for operation in operations]

    def _apply(self, operation: Operation) -> Outcome:
        try:
            return Outcome(self._call(operation))
        except PeerError as error:
            return Outcome(error=_class_of(error.text))

    def _call(self, operation: Operation) -> str:
        match operation.method, operation.args:
            case "enqueue", (type, payload):
                return str(self._peer.request(ENQUEUE, type=type, **_task(payload, operation.options))["state"])
            case "begin", (queue, expected):
                wait_ns = LIMIT_NS if expected else NOTHING_FOR_NS
                return self._peer.request(f"step_{BEGIN}", queue=queue, wait_ns=wait_ns, timeout=LIMIT_S) or NOTHING
            case "end", (_, outcome, text):
                return str(self._peer.request(f"step_{END}", script=_script(outcome, text)))
            case "cancel", (_, task_id):
                return str(self._peer.request(f"step_{END}", **{CANCEL: task_id}))
            case method, args:
                options = operation.options
                more = (
                    [{"page": options["page"], "size": options["page_size"]}] if method in PAGED else options.values()
                )
                return told_by_go(method, self._peer.inspect(_go_name(method), *args, *more))


def _class_of(error: str) -> str:
    """Return the name of fastq's class; one that has none is named as it is, and so is a difference."""
    classes = {name for text, name in ERRORS.items() if text in error}
    return classes.pop() if len(classes) == 1 else error


def _made(operation: Operation, told: Mapping[str, Any]) -> Outcome:
    """Return the result of a round: of one that should do nothing, and of an aggregator's how many groups it took."""
    if told["errors"]:
        return Outcome(error=_class_of("; ".join(told["errors"])))
    if operation.args[0] == "aggregator":
        return Outcome(str(told["aggregated"] or NOTHING))
    return Outcome("" if operation.gone else NOTHING)


def _go_name(method: str) -> str:
    return "".join(word.title() for word in method.split("_"))


def _script(outcome: str, text: bytes) -> Mapping[str, Any]:
    return {"do": outcome, "result": text} if outcome == "result" else {"do": outcome, "text": text.decode()}


def _task(payload: bytes | None, given: Mapping[str, Any]) -> Mapping[str, Any]:
    options = dict(given)
    task = {"payload": payload, "headers": options.pop("headers", None)}
    return {**{name: value for name, value in task.items() if value is not None}, "options": options_for_go(options)}


def options_for_go(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put fastq's options into the peer's words: whole nanoseconds instead of seconds."""
    options = dict(given)
    for name in ("timeout", "unique", "process_in", "retention"):
        if name in options:
            options[f"{name}_ns"] = round(options.pop(name) * SECOND_NS)
    return options


def _round(operation: Operation) -> Mapping[str, Any]:
    actor, queue = operation.args
    due: Due | None = operation.options.get("groups")
    if due is None:
        return {"actor": actor, "queue": queue}
    rule = {"max_size": due.max_size, "max_delay_ns": due.max_delay_s * SECOND_NS}
    answer = {"nil": True} if due.options is None else {"options": options_for_go(due.options)}
    return {"actor": actor, "queue": queue, "groups": {**rule, **answer}}
