"""Look at tasks in Redis with redis-py alone, and at what the app's handlers told."""

import json
from dataclasses import dataclass
from typing import Any

from redis import Redis

from fastq.wire.codec import TaskMessage, decode_task_message
from tests.e2e.apps import EVENTS, gate
from tests.waiting import PATIENCE_S, wait_until

LISTS = ("pending", "active")


@dataclass(frozen=True)
class Event:
    """What a handler told: ``what``, of which task, in which process."""

    what: str
    task_id: str
    pid: int


def _event(raw: bytes) -> Event:
    what, task_id, pid = raw.decode().split()
    return Event(what, task_id, int(pid))


class View:
    """Read the state of tasks, and talk with their handlers."""

    def __init__(self, db: Redis) -> None:
        self.db = db
        self._ask: Any = db  # redis-py's types speak of coroutines, too

    # Tasks

    def fields(self, task_id: str, queue: str = "default") -> dict[bytes, bytes]:
        fields: dict[bytes, bytes] = self._ask.hgetall(f"asynq:{{{queue}}}:t:{task_id}")
        return fields

    def state(self, task_id: str, queue: str = "default") -> str:
        """Return the task's state, "" when it is gone."""
        return self.fields(task_id, queue).get(b"state", b"").decode()

    def message(self, task_id: str, queue: str = "default") -> TaskMessage:
        return decode_task_message(self.fields(task_id, queue)[b"msg"])

    def result(self, task_id: str, queue: str = "default") -> bytes | None:
        return self.fields(task_id, queue).get(b"result")

    def json_result(self, task_id: str, queue: str = "default") -> Any:
        result = self.result(task_id, queue)
        return None if result is None else json.loads(result)

    def until(
        self, state: str, task_id: str, queue: str = "default", timeout_s: float = PATIENCE_S
    ) -> TaskMessage | None:
        """Wait for a state, and return the message (None when gone)."""

        def is_so() -> bool:
            return self.state(task_id, queue) == state

        try:
            wait_until(is_so, timeout_s)
        except AssertionError:
            raise AssertionError(f"task {task_id} is {self.state(task_id, queue)!r}, not {state!r}") from None
        return self.message(task_id, queue) if state else None

    def ids(self, where: str, queue: str = "default") -> list[str]:
        """Return the ids of a list or sorted set of a queue; of pending: the one that is run next first."""
        key = f"asynq:{{{queue}}}:{where}"
        found = self._ask.lrange(key, 0, -1)[::-1] if where in LISTS else self._ask.zrange(key, 0, -1)
        return [task_id.decode() for task_id in found]

    def size(self, where: str, queue: str = "default") -> int:
        key = f"asynq:{{{queue}}}:{where}"
        size: int = self._ask.llen(key) if where in LISTS else self._ask.zcard(key)
        return size

    def count(self, what: str, queue: str = "default") -> int:
        """Return a counter: processed or failed."""
        return int(self._ask.get(f"asynq:{{{queue}}}:{what}") or 0)

    # Servers

    def published(self) -> bytes:
        """Return the encoded ServerInfo of the one server, b"" when there is none."""
        return b"".join(self._ask.get(key) or b"" for key in self._ask.scan_iter("asynq:servers:*"))

    # Redis

    def facts(self, section: str) -> Any:
        """Return a section of INFO."""
        return self._ask.info(section)

    def forbid(self, *commands: str) -> None:
        """Take commands from the user that everybody is, until `allow_all`."""
        self._ask.execute_command("ACL", "SETUSER", "default", *(f"-{command}" for command in commands))

    def allow_all(self) -> None:
        self._ask.execute_command("ACL", "SETUSER", "default", "+@all")

    # Handlers

    def event(self, timeout_s: float = PATIENCE_S) -> Event:
        """Wait for the next thing that a handler tells."""
        wait_until(lambda: self._ask.llen(EVENTS), timeout_s)
        return _event(self._ask.lpop(EVENTS))

    def expect(self, what: str, task_id: str = "", timeout_s: float = PATIENCE_S) -> Event:
        """Wait for the next event, which must be this one."""
        event = self.event(timeout_s)
        assert event.what == what, event
        assert task_id in ("", event.task_id), event
        return event

    def events_so_far(self) -> list[str]:
        """Return what was told, and leave it there."""
        return [_event(raw).what for raw in self._ask.lrange(EVENTS, 0, -1)]

    def events(self) -> list[Event]:
        """Return all that was told and not taken."""
        found = []
        while raw := self._ask.lpop(EVENTS):
            found.append(_event(raw))
        return found

    def open(self, name: str = "g", times: int = 1) -> None:
        """Let so many handlers pass a gate."""
        self.db.rpush(gate(name), *["1"] * times)
