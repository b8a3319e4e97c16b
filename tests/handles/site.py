"""The other end of a handle: a queue in which the test ends tasks as a server does, with a message or without."""

from typing import Any

from redis import Redis

from fastq.broker.operations.ends import tell_inbox
from fastq.wire import keys
from fastq.wire.codec import TaskMessage, decode_task_message, rewrite_task_message
from fastq.wire.inbox import INBOX_HEADER, SUBMIT_HEADER, EndKind, TaskEnd

QUEUE = "default"
GARBLED = b"\xff", b"{", b"{}", b'{"queue":[],"ended":[["a","done"]]}', b'{"queue":"default","ended":[[["a"],"gone"]]}'
"""Messages that a client does not believe."""


class Site:
    """Tasks in Redis, ended by hand."""

    def __init__(self, db: Redis) -> None:
        self.db: Any = db

    def end(
        self,
        task_id: str,
        state: str = "completed",
        result: bytes | None = None,
        error: str = "",
        *,
        tells: bool = True,
    ) -> None:
        """End a task, and tell its client of it."""
        key = keys.task(QUEUE, task_id)
        message = self.db.hget(key, "msg")
        if state == "gone":
            self.db.delete(key)
        else:
            fields = {"state": state, "msg": rewrite_task_message(message, error_msg=error)}
            self.db.hset(key, mapping=fields | ({} if result is None else {"result": result}))
        if tells:
            self.tell(message, state, result, error)

    def tell(
        self,
        message: bytes,
        state: str,
        result: bytes | None = None,
        error: str = "",
        *,
        knows_submits: bool = True,
    ) -> int:
        """Tell the client of a task that it has ended, as an older server does unless it knows submits.

        Return how many heard it.
        """
        task = decode_task_message(message)
        kinds = {"archived": EndKind.FAILED, "gone": EndKind.GONE}
        kind = kinds.get(state, EndKind.DONE if result is None else EndKind.RESULT)
        end = task.id, TaskEnd(kind, error), task.headers[SUBMIT_HEADER] if knows_submits else ""
        telling = tell_inbox(task.headers[INBOX_HEADER], QUEUE, [end])
        heard: int = self.db.execute_command(*telling.words())
        return heard

    def message(self, task_id: str) -> TaskMessage:
        """Return the message of a task."""
        return decode_task_message(self.db.hget(keys.task(QUEUE, task_id), "msg"))

    def looks(self) -> int:
        """Return how many scripts were called: those of looks, unless somebody enqueues."""
        stats = self.db.info("commandstats")
        return sum(int(stats.get(name, {"calls": 0})["calls"]) for name in ("cmdstat_eval", "cmdstat_evalsha"))

    def listeners(self) -> list[bytes]:
        """Return the channels of inboxes that somebody listens to."""
        channels: list[bytes] = self.db.pubsub_channels("asynq:inbox:*")
        return channels
