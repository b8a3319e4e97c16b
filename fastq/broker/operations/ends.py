"""The ends of tasks: how waiting clients ask about them, and how servers tell those clients."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar, cast

from fastq.broker.operation import Flow, Operation, Receive, Send, Word, scripted, together
from fastq.broker.operations.errors import read_tracebacks
from fastq.broker.operations.finish import Completed, completed_end
from fastq.common.states import TaskState
from fastq.errors import BrokerError
from fastq.wire import keys
from fastq.wire.attempts import decode_attempts, own_traceback
from fastq.wire.inbox import EndKind, TaskEnd, encode_end, encode_ends, error_in, mark_of, opening_of
from fastq.wire.progress import TaskProgress, read_progress

TASKS_A_CALL: Final = 500
CALLS_AT_ONCE: Final = 4
MAX_READ_BYTES: Final = 256_000

T = TypeVar("T")

TaskKey = tuple[str, str]
"""The queue of a task, and its id."""

SubmitKey = tuple[str, str, str]
"""The queue of a task, its id, and the nonce of the submit that made it; "" means any task with the id."""

Part: TypeAlias = Sequence[tuple[str, list[tuple[str, str]]]]
"""The tasks that one round trip looks at: for each call a queue, and pairs of id and nonce."""

_GONE: Final = TaskEnd(EndKind.GONE, is_whole=True)
_DONE: Final = TaskEnd(EndKind.DONE, is_whole=True)
_COMPLETED: Final = TaskEnd(EndKind.RESULT)
_ARCHIVED: Final = TaskEnd(EndKind.FAILED)


def tell_inbox(inbox: str, queue: str, ends: Iterable[tuple[str, TaskEnd, str]]) -> Operation[int]:
    """Publish to a client how tasks of a queue have ended, each with the nonce of its submit."""
    # Without a key: in a cluster a message reaches the subscribers of all nodes.
    return Operation("PUBLISH", (), (keys.inbox_channel(inbox), encode_ends(queue, ends)), int)


def tell_completed(inbox: str, queue: str, tasks: Iterable[tuple[Completed, str]]) -> Operation[int]:
    """Publish to a client which of these tasks were completed by the operation sent just before.

    Each task comes with the nonce of its submit.
    """
    words: list[Word] = []
    for task, submit in tasks:
        words += (task.id, task.kept_until_s, encode_end(task.id, completed_end(task), submit))
    args: tuple[Word, ...] = (keys.inbox_channel(inbox), opening_of(queue), *words)
    return scripted("publish_completed", (keys.completed(queue),), args, int)


def read_state(queue: str, task_id: str, submit: str = "") -> Operation[TaskState | None]:
    """Read the state of a task; None if it is gone, is moving to another queue, or was made by another submit."""
    key = keys.task(queue, task_id)
    if not submit:
        return Operation("HGET", (key,), ("state",), _state, idempotent=True)
    return scripted("read_ends", (key,), (0, mark_of(submit)), lambda reply: _state(reply[0]), idempotent=True)


def _state(reply: bytes | None) -> TaskState | None:
    return _STATES.get(reply)


_STATES: Final[Mapping[bytes | None, TaskState]] = {state.value.encode(): state for state in TaskState}


def read_why(queue: str, task_id: str, now_s: int) -> Flow[str]:
    """Return why a task has not ended, as far as that is known: its state, and that nobody serves its queue."""
    state = yield read_state(queue, task_id)
    if state not in _NOT_ENDED:
        return ""
    live: list[bytes] = yield Operation("ZRANGEBYSCORE", (keys.all_servers(),), (now_s, "+inf"), idempotent=True)
    names = [key.decode("utf-8", "surrogateescape") for key in live]
    infos: list[bytes | None] = yield from together(*(Operation("GET", (name,), (), idempotent=True) for name in names))
    # The queue's name as it is encoded in a ServerInfo. Clients do not decode the rest: importing protobuf takes long.
    name = queue.encode()
    served = b"\n%c%b" % (len(name), name) if len(name) < 128 else name
    is_served = state is TaskState.ACTIVE or any(info is not None and served in info for info in infos)
    return f": it is {state}" if is_served else f": it is {state}; no server serves queue {queue!r}"


_NOT_ENDED: Final = frozenset({TaskState.PENDING, TaskState.SCHEDULED, TaskState.RETRY, TaskState.ACTIVE})


def read_progress_of(task: SubmitKey) -> Flow[TaskProgress | None]:
    """Read how far a task has come; None if it has reported nothing, or was made by another submit."""
    # The state is read last: if it is still this task's, so is the progress.
    progress, state = yield from together(
        Operation("HGET", (keys.task(*task[:2]),), ("progress",), read_progress, idempotent=True), read_state(*task)
    )
    return progress if state in _TOLD else None


_TOLD: Final = frozenset({TaskState.ACTIVE, TaskState.COMPLETED, TaskState.ARCHIVED})
"""In other states, the stored progress is of an earlier attempt: asynq's own tools leave it there."""


def read_ends(queue: str, submits: Sequence[tuple[str, str]], *, whole: bool = True) -> Operation[list[TaskEnd | None]]:
    """Read how tasks have ended, by id and nonce; None for a task that has not ended.

    With ``whole``, results and errors are read, too, and a task of another submit counts as gone. If results are big,
    only the first ends may be returned.
    """
    prefix = keys.task_prefix(queue)
    tasks = [prefix + task_id for task_id, _ in submits]
    if not whole:
        return scripted("read_ends", tasks, (0,), _bare_ends, idempotent=True)
    marks = [mark_of(submit) for _, submit in submits]
    return scripted("read_ends", tasks, (MAX_READ_BYTES, *marks), _whole_ends, idempotent=True)


def _bare_ends(reply: list[Any]) -> list[TaskEnd | None]:
    return [_BARE.get(state) for state in reply[::3]]


_BARE: Final[Mapping[bytes | None, TaskEnd]] = {None: _GONE, b"completed": _COMPLETED, b"archived": _ARCHIVED}


def _whole_ends(reply: list[Any]) -> list[TaskEnd | None]:
    return [_whole_end(*reply[at : at + 3]) for at in range(0, len(reply), 3)]


def _whole_end(state: bytes | None, left: bytes | None, attempt: bytes | None) -> TaskEnd | None:
    if state == b"completed":
        return _DONE if left is None else TaskEnd(EndKind.RESULT, result=left, is_whole=True)
    if state == b"archived":
        fingerprints = [each.fingerprint for each in decode_attempts(attempt or b"")]
        return TaskEnd(EndKind.FAILED, error_in(left), is_whole=True, fingerprint="".join(fingerprints))
    return _GONE if state is None else None


def read_end(task: SubmitKey) -> Flow[TaskEnd | None]:
    """Read how a task has ended, None if it has not."""
    (end,) = yield read_ends(task[0], (task[1:],))
    return end if end is None else (yield from read_rest({task: end}))[task]


def parts_of(tasks: Iterable[SubmitKey]) -> Iterator[Part]:
    """Divide any number of tasks into parts."""
    calls = _calls(tasks)
    while part := list(islice(calls, CALLS_AT_ONCE)):
        yield part


def look_at(part: Part) -> Flow[list[tuple[SubmitKey, TaskEnd]]]:
    """Return which tasks of a part have ended; results and errors are included only if the part has a single task.

    An end without them may belong to a later task with the same id: ``read_rest`` checks that.
    """
    if len(part) == len(part[0][1]) == 1:
        task = part[0][0], *part[0][1][0]
        end = yield from read_end(task)
        return [] if end is None else [(task, end)]
    replies = yield from together(*(read_ends(queue, submits, whole=False) for queue, submits in part))
    return [
        ((queue, *submit), end)
        for (queue, submits), ends in zip(part, replies, strict=True)
        for submit, end in zip(submits, ends, strict=True)
        if end is not None
    ]


def read_rest(ends: Mapping[SubmitKey, TaskEnd]) -> Flow[dict[SubmitKey, TaskEnd]]:
    """Read the results, errors and tracebacks of tasks that have ended, where they are not known yet.

    If a task has left the archive meanwhile, its error stays as a server has published it.
    """
    whole = {task: end for task, end in ends.items() if end.is_whole}
    for queue, submits in _calls(task for task in ends if task not in whole):
        read = 0
        while read < len(submits):
            found: list[TaskEnd | None] = yield from _read_alone(read_ends(queue, submits[read:]))
            for submit, end in zip(submits[read:], found, strict=False):
                task = (queue, *submit)
                is_lost = end is None or end.kind is EndKind.GONE
                keeps = is_lost and ends[task].error
                whole[task] = ends[task]._replace(is_whole=True) if keeps else end or _GONE
            read += len(found)
    yield from _read_tracebacks(whole)
    return whole


def _read_alone(operation: Operation[T]) -> Flow[T]:
    """Carry out one operation with the whole timeout of a call: big results may take many such operations."""
    ticket = yield Send((operation,))
    (result,) = yield Receive(ticket)
    if isinstance(result, BrokerError):
        raise result
    return cast("T", result)


def _read_tracebacks(whole: dict[SubmitKey, TaskEnd]) -> Flow[None]:
    """Add the tracebacks that are kept, each of which may belong to many tasks."""
    failed = {task: end for task, end in whole.items() if end.fingerprint and not end.traceback}
    for queue in {task[0] for task in failed}:
        fingerprints = {end.fingerprint for task, end in failed.items() if task[0] == queue}
        kept = yield from _read_alone(read_tracebacks(queue, sorted(fingerprints)))
        for task, end in failed.items():
            if task[0] == queue:
                found = kept.get(end.fingerprint, "")
                whole[task] = end._replace(traceback=found and own_traceback(found, end.error))


def _calls(tasks: Iterable[SubmitKey]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Put tasks together by queue, as many as fit into a call."""
    by_queue: dict[str, list[tuple[str, str]]] = {}
    for queue, task_id, submit in tasks:
        submits = by_queue.setdefault(queue, [])
        submits.append((task_id, submit))
        if len(submits) == TASKS_A_CALL:
            yield queue, by_queue.pop(queue)
    yield from by_queue.items()
