"""Apply operations through fastq: its client, its inspector, and the parts of a server that touch Redis."""

import asyncio
from types import TracebackType
from typing import Any, Self

from redis import Redis

from fastq import Client, FastqError, Inspector, keys
from fastq.codec import decode_task_message
from fastq.pool.outcome import Kind
from fastq.server.config import ServerConfig
from tests.interop.differential.operation import Operation, Outcome
from tests.test_keyspace_server import Stage

__all__ = ["FastqSide"]

KINDS = {
    "ok": Kind.DONE,
    "result": Kind.RESULT,
    "error": Kind.FAILED,
    "not_failure": Kind.FAILED,
    "skip": Kind.SKIP_RETRY,
    "revoke": Kind.REVOKED,
    "panic": Kind.FAILED,
}
WRAPPED = {"skip": b": skip retry for the task", "revoke": b": revoke task"}
"""What Go's ``%w`` adds to the text of the error."""


class FastqSide:
    """Hold a client, an inspector and a stage; new ones for each sequence. Go's database tells a panic's text."""

    def __init__(self, db: Redis, url: str, theirs: Redis) -> None:
        self._db: Any = db
        self._theirs: Any = theirs
        self._url = url
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self.begin_sequence()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._runner.close()

    def begin_sequence(self) -> None:
        if hasattr(self, "_stage"):
            self._close()
        self._client, self._inspector = Client(self._url), Inspector(self._url)
        self._stage = self._runner.run(self._open())

    def renew_clients(self) -> None:
        self._client.close()
        self._client = Client(self._url)

    async def _open(self) -> Stage:
        return Stage(self._db, self._url)

    def _close(self) -> None:
        self._client.close()
        self._inspector.close()
        self._runner.run(self._stage.aclose())

    def apply(self, operation: Operation) -> Outcome:
        try:
            return Outcome(self._call(operation))
        except (FastqError, ValueError, TypeError) as error:
            return Outcome(error=type(error).__name__)

    def _call(self, operation: Operation) -> str:
        match operation.method, operation.args:
            case "enqueue", (type, payload):
                return str(self._client.enqueue(type, payload, **operation.options).state)
            case "begin", (queue, _):
                return str(self._runner.run(self._begin(queue)))
            case "end", (task, outcome, text):
                return str(self._runner.run(self._end(task, outcome, text)))
            case "cancel", (_, task_id):
                self._inspector.cancel_processing(task_id)
                return str(self._runner.run(self._stage.end(Kind.CANCELED, b"context canceled")))
            case method, args:
                return str(getattr(self._inspector, method)(*args, **operation.options))

    async def _begin(self, queue: str) -> str | None:
        self._stage.config = ServerConfig(concurrency=1, queues={queue: 1})
        await self._stage.fetch(room=1)
        held = [task.id for _, tasks in self._stage.held.by_queue() for task in tasks]
        return held[0] if held else None

    async def _end(self, task: tuple[str, str], outcome: str, text: bytes) -> None:
        if outcome == "panic":  # Go's text has the place in the handler's source in it
            message = self._theirs.hget(keys.task(*task), "msg")
            text = decode_task_message(message).error_msg.encode()
        text += WRAPPED.get(outcome, b"")
        await self._stage.end(KINDS[outcome], text if outcome != "ok" else b"", is_failure=outcome != "not_failure")
