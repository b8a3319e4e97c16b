"""The outbox: tasks that are written in a transaction of the database, and enqueued once it is committed."""

import logging
import time
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias, Unpack

from sqlalchemy import Engine, create_engine, delete, func, select
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from fastq.client import Client
from fastq.common.clock import at_unix_ns
from fastq.contrib.sqlalchemy.tables import OutboxTask
from fastq.enqueueing.producer import compose
from fastq.errors import BrokerError, DuplicateTaskError, FastqError, QueueFullError, TaskIDConflictError
from fastq.info import TaskInfo
from fastq.options import EnqueueOptions, check_options
from fastq.task import Task, with_options

AT_ONCE: Final = 500
"""How many rows are relayed in one transaction."""
KEPT_S: Final = 3600
"""How long a completed task without a retention is kept: if its row is relayed again, the id is still taken."""

DEFAULT_QUEUE: Final = "default"
"""The queue of a task that names none."""

_NS: Final = 1_000_000_000
_TIMES: Final = ("deadline", "process_at")

_IN_QUEUE: Final = (TaskInfo, TaskIDConflictError, DuplicateTaskError)
"""The results of tasks that are in their queues, enqueued now or before."""

_Pair: TypeAlias = tuple[OutboxTask, Task]

_log = logging.getLogger("fastq.outbox")


class Relayed(NamedTuple):
    """The result of a call of ``relay``: how many tasks are in their queues, and how many rows cannot be enqueued.

    ``full`` names the queues that are full, whose other rows wait.
    """

    sent: int
    refused: int
    full: tuple[str, ...] = ()


def add_to_outbox(session: Session | AsyncSession, task: Task, **options: Unpack[EnqueueOptions]) -> str:
    """Have a task enqueued by ``fastq outbox`` if the transaction of a session is committed; return the task's id.

    The options and their errors for bad input are those of ``Client.enqueue``; ``process_in`` counts from now. The id
    of a task with a key is its key.
    """
    if not isinstance(task, Task):
        raise TypeError(f"add_to_outbox takes a fastq.Task, as a typed task's task(...) makes it, not {task!r}")
    made = with_options(task, check_options(options))
    _, info = compose(made, {}, time.time_ns())  # refuses options that do not go together, and too long a message
    session.add(OutboxTask(task_id=info.id, type=made.type, payload=made.payload, options=_as_json(made)))
    return info.id


def relay(engine: Engine, client: Client, at_once: int = AT_ONCE) -> Relayed:
    """Enqueue the oldest tasks of the outbox, and delete their rows in one transaction.

    A task is enqueued under the id in its row. If an interrupted relay has already enqueued it, the id conflicts, and
    the task counts as sent. A task whose unique lock is held counts as sent, too. A task with a key is put by its key
    again. If no task can be made from a row, or its key belongs to a task that cannot be replaced, the error is stored
    in the row, and the row is not read again. The rows of a full queue stay for a later call, and those behind them are
    read. If Redis fails, ``BrokerError`` is raised once the rows of the tasks that were enqueued are deleted; the other
    rows stay. Several relays may run at once; then tasks may be enqueued in another order.
    """
    sent = refused = 0
    full: set[str] = set()
    failure: FastqError | None = None
    with Session(engine) as session, session.begin():
        is_new = True  # at first, and while queues turn out to be full, so that rows of other queues are left to read
        while is_new and failure is None and sent + refused < at_once:
            pairs, bad = _read(session, full, at_once - sent - refused)
            known = len(full)
            put, unput, failure = _put(client, pairs, full)
            session.execute(delete(OutboxTask).where(OutboxTask.id.in_(put)))
            sent, refused, is_new = sent + len(put), refused + bad + unput, len(full) > known
    if failure is not None:
        raise failure
    return Relayed(sent, refused, tuple(sorted(full)))


def _read(session: Session, full: Set[str], at_most: int) -> tuple[list[_Pair], int]:
    """Return the oldest rows and their tasks, but none of full queues; also how many rows were refused."""
    waiting = select(OutboxTask).where(OutboxTask.error.is_(None)).order_by(OutboxTask.id).limit(at_most)
    if full:
        waiting = waiting.where(func.coalesce(OutboxTask.options["queue"].as_string(), DEFAULT_QUEUE).not_in(full))
    pairs, refused = [], 0
    for row in session.scalars(waiting.with_for_update(skip_locked=True)):
        try:
            pairs.append((row, _task_of(row)))
        except (TypeError, ValueError) as error:
            refused += _refuse(row, error)
    return pairs, refused


def _put(client: Client, pairs: Sequence[_Pair], full: set[str]) -> tuple[list[int], int, FastqError | None]:
    """Enqueue tasks, except those of full queues, and add to ``full`` those that turn out to be.

    Return the ids of the rows whose tasks are in their queues, how many rows were refused, and any other error.
    """
    sent: list[int] = []
    refused = 0
    while pairs:
        ended: BrokerError | None = None
        try:
            results: Sequence[Any] = client.enqueue_many([task for _, task in pairs])
        except BrokerError as error:  # of a full queue, too; then the tasks behind the results were not tried
            results, ended = error.results or (), error
        for (row, _), result in zip(pairs, results, strict=False):
            if isinstance(result, TaskIDConflictError) and row.options.get("key"):
                refused += _refuse(row, result)  # another task has the key, and cannot be replaced
            elif isinstance(result, _IN_QUEUE):
                sent.append(row.id)
        found = set()
        for result in (*results, ended):
            if isinstance(result, QueueFullError):
                found.add(result.queue)
            elif isinstance(result, FastqError) and not isinstance(result, _IN_QUEUE):
                return sent, refused, result
        found -= full
        full |= found
        pairs = [pair for pair in pairs[len(results) :] if _queue_of(pair[1]) not in full] if found else []
    return sent, refused, None


def _queue_of(task: Task) -> str:
    queue: str = task.options.get("queue", DEFAULT_QUEUE)
    return queue


def _refuse(row: OutboxTask, error: Exception) -> int:
    """Store in a row why it is not tried again; return 1, the number of rows refused."""
    row.error = str(error)
    _log.error("row %s of %s cannot be enqueued: %s", row.id, OutboxTask.__tablename__, error)
    return 1


def _as_json(task: Task) -> dict[str, Any]:
    """Return the checked options of a task as JSON, which ``_task_of`` reads."""
    options = {name: value for name, value in task.options.items() if name != "task_id"}  # it has a column of its own
    kind, process_ns = options.pop("process", ("", 0))
    if kind:
        at = at_unix_ns(process_ns) if kind == "at" else datetime.now(UTC) + timedelta(microseconds=process_ns / 1000)
        options["process_at"] = at.isoformat()
    if "deadline" in options:
        options["deadline"] = at_unix_ns(options["deadline"] * _NS).isoformat()
    for name in {"unique", "latest"} & options.keys():
        options[name] /= _NS
    if task.headers:
        options["headers"] = dict(task.headers)
    return options


def _task_of(row: OutboxTask) -> Task:
    """Return the task of a row; ``TypeError`` or ``ValueError`` if it cannot be one."""
    if not isinstance(row.options, Mapping):
        raise TypeError(f"options must be a JSON object, not {row.options!r}")
    # The id of a task with a key is the key, and a completed task does not keep another from being put by its key.
    own: dict[str, Any] = {} if row.options.get("key") else {"task_id": row.task_id}
    options: Any = {**({"retention": KEPT_S} if own else {}), **row.options, **own}
    for name in _TIMES:
        if isinstance(options.get(name), str):
            options[name] = datetime.fromisoformat(options[name])
    task = Task(row.type, row.payload or None, **options)
    compose(task, {}, time.time_ns())  # options that contradict each other would fail the tasks of other rows, too
    return task


class Relay:
    """Relays the outbox of the database at a URL with a client; ``FastqError`` if the URL is invalid."""

    def __init__(self, database: str, client: Client) -> None:
        self._client = client
        try:
            self._engine = create_engine(database, pool_pre_ping=True)
        except (ArgumentError, ModuleNotFoundError) as error:
            raise FastqError(f"the database of the outbox cannot be opened: {error}") from None

    def run(self) -> Relayed:
        """Relay the oldest tasks; ``BrokerError`` if Redis fails, ``FastqError`` if the database does."""
        try:
            return relay(self._engine, self._client)
        except SQLAlchemyError as error:
            raise FastqError(f"the outbox cannot be relayed: {str(error).partition(chr(10))[0]}") from error

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()
