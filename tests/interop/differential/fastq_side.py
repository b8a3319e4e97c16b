"""Apply operations through fastq: its clients, its inspectors, and the parts of a server that touch Redis."""

import asyncio
import inspect
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from redis import Redis

from fastq import AsyncClient, AsyncInspector, Client, FastqError, Inspector
from fastq.broker.operations.cancel import Cancellation
from fastq.pool.shared.event_kind import EventKind
from fastq.server.actors.subscriber import Subscriber
from fastq.server.base.config import ServerConfig
from fastq.server.base.outage import Outage
from fastq.server.inflight.cancellations import EarlyCancellations
from fastq.wire import keys
from fastq.wire.codec import decode_task_message
from tests.interop.differential.actors import tended
from tests.interop.differential.goal import NOTHING
from tests.interop.differential.operation import TEND, Operation, Outcome
from tests.interop.differential.reading import told_by_fastq
from tests.test_keyspace_server import Stage
from tests.waiting import PATIENCE_S, until

KINDS = {
    "ok": EventKind.DONE,
    "result": EventKind.RESULT,
    "error": EventKind.FAILED,
    "not_failure": EventKind.FAILED,
    "skip": EventKind.SKIP_RETRY,
    "revoke": EventKind.REVOKED,
    "panic": EventKind.FAILED,
}
WRAPPED = {"skip": b": skip retry for the task", "revoke": b": revoke task"}
"""What Go's ``%w`` adds to the text of the error."""


class FastqSide:
    """A stage, inspectors, and a client for each sequence. A panic's text comes from Go's database.

    Client and inspector are the blocking or the asyncio ones.
    """

    def __init__(self, db: Redis, url: str, theirs: Redis) -> None:
        self._db: Any = db
        self._theirs: Any = theirs
        self._url = url
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._inspectors: tuple[Any, Any] = Inspector(self._url), AsyncInspector(self._url)
        self._stage = self._runner.run(self._open())
        self._client: Any = None
        self.begin_sequence(is_async=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._client, *self._inspectors):
            self._call(each.close)
        self._runner.run(self._stage.aclose())
        self._runner.close()

    def begin_sequence(self, *, is_async: bool) -> None:
        """Take a new client: one remembers the queues that it made known."""
        self._kind: Any = AsyncClient if is_async else Client
        self._inspector: Any = self._inspectors[is_async]
        self.renew_clients()

    def renew_clients(self) -> None:
        if self._client is not None:
            self._call(self._client.close)
        self._client = self._kind(self._url)

    async def _open(self) -> Stage:
        return Stage(self._db, self._url)

    def _call(self, method: Any, *args: Any, **options: Any) -> Any:
        """Call a method of the client or the inspector, whichever of the two it is."""
        made = method(*args, **options)
        return self._runner.run(made) if inspect.iscoroutine(made) else made

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply them one after the other."""
        return [self._apply(operation) for operation in operations]

    def _apply(self, operation: Operation) -> Outcome:
        if operation.method == TEND:
            return self._runner.run(tended(self._stage, operation))
        try:
            return Outcome(self._told(operation))
        except (FastqError, ValueError, TypeError) as error:
            return Outcome(error=type(error).__name__)

    def _told(self, operation: Operation) -> str:
        match operation.method, operation.args:
            case "enqueue", (type, payload):
                return str(self._call(self._client.enqueue, type, payload, **operation.options).state)
            case "begin", (queue, _):
                return self._runner.run(self._begin(queue))
            case "end", (task, outcome, text):
                return str(self._runner.run(self._end(task, outcome, text)))
            case "cancel", (_, task_id):
                self._cancel(task_id)
                return str(None)
            case method, args:
                return told_by_fastq(method, self._call(getattr(self._inspector, method), *args, **operation.options))

    async def _begin(self, queue: str) -> str:
        self._stage.config = ServerConfig(concurrency=1, queues={queue: 1})
        await self._stage.fetch(room=1)
        held = [task.id for _, tasks in self._stage.tasks.by_queue() for task in tasks]
        return held[0] if held else NOTHING

    async def _end(self, task: tuple[str, str], outcome: str, text: bytes) -> None:
        if outcome == "panic":  # Go's text has the place in the handler's source in it
            message = self._theirs.hget(keys.task(*task), "msg")
            text = decode_task_message(message).error_msg.encode()
        text += WRAPPED.get(outcome, b"")
        await self._stage.end(KINDS[outcome], text if outcome != "ok" else b"", is_failure=outcome != "not_failure")

    def _cancel(self, task_id: str) -> None:
        """Let a server's subscriber hear of it, and the handler end by that."""
        heard: list[Cancellation] = []

        def hear(cancellation: Cancellation) -> bool:
            heard.append(cancellation)
            return True

        async def listen() -> Subscriber:
            clock = self._stage.in_flight.clock
            subscriber = Subscriber(self._stage.broker, hear, EarlyCancellations(clock), clock, [], Outage())
            subscriber.start()
            async with asyncio.timeout(PATIENCE_S):
                await until(lambda: subscriber.is_subscribed)
            return subscriber

        async def end(subscriber: Subscriber) -> None:
            async with asyncio.timeout(PATIENCE_S):
                await until(lambda: heard == [Cancellation(task_id)])
            await subscriber.stop()
            await self._stage.end(EventKind.CANCELED, b"context canceled")

        subscriber = self._runner.run(listen())
        self._call(self._inspector.cancel_processing, task_id)
        self._runner.run(end(subscriber))
