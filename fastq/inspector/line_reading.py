"""Reads the lines that ``task_lines`` writes, one task each.

The task is restored from ``message``, ``fields``, ``score`` and ``unique_until``, in the place that ``queue`` and
``state`` name. The other fields of a line must agree with these, so that an
edit of another field is not silently ignored.
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self

from fastq.broker.inspect.put import lock_of, readdress
from fastq.broker.operations.lease import id_word
from fastq.broker.operations.walk import WalkedTask
from fastq.common.states import TaskState
from fastq.common.times import read_time
from fastq.errors import InvalidMessageError
from fastq.inspector.checks import check_queue, check_task_id
from fastq.inspector.task_lines import OWN_FIELDS, describe_listed, readable
from fastq.wire.codec import decode_task_message
from fastq.wire.messages import TaskMessage

SINCE: Final = b"pending_since"
NS_DIGITS: Final = 19
MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Line:
    """One task: its message decoded and raw, the other fields of its hash, its score, and the end of its lock."""

    queue: str
    id: str
    state: TaskState
    decoded: TaskMessage
    message: bytes
    fields: Mapping[bytes, bytes]
    score: float | None
    unique_until: datetime | None

    @property
    def lock(self) -> str:
        """Return the key of the unique lock, empty if there is none."""
        return lock_of(self.queue, self.decoded.unique_key)

    @property
    def group(self) -> str:
        """Return the group that the task is in or will join; empty if there is none."""
        named = self.fields.get(b"group")
        return self.decoded.group_key if named is None else named.decode("utf-8", "surrogateescape")

    def of_queue(self, queue: str) -> Self:
        """Return the task as it would be in another queue."""
        fields = readdress({**self.fields, b"msg": self.message}, self.queue, queue)
        message = fields.pop(b"msg")
        return replace(self, queue=queue, decoded=decode_task_message(message), message=message, fields=fields)


# Reading ------------------------------------------------------------------------------------------------------------


def read_line(text: bytes) -> Line:
    """Read a line; a ``ValueError`` names the fault in a bad line."""
    found = Read.of(text)
    queue = check_queue(found.of_kind("queue", str))
    task_id = check_task_id(found.of_kind("id", str))
    state = found.state()
    message = _bytes(found.of_kind("message", str), "message")
    try:
        decoded = decode_task_message(message)
    except InvalidMessageError as error:
        raise ValueError(f"message is not a message of asynq: {error}") from None
    fields = found.fields()
    line = Line(queue, task_id, state, decoded, message, fields, found.score(state), found.moment("unique_until"))
    _check_agreement(line, found)
    if state is TaskState.AGGREGATING and not line.group.strip():
        raise ValueError("an aggregating task needs a group")
    return line


class Read:
    """The JSON object of a line, with checked access to its values."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    @classmethod
    def of(cls, text: bytes) -> "Read":
        """Parse the JSON of a line."""
        cut = "" if text.endswith(b"\n") else "; it is the last line and may be cut off"
        try:
            values = json.loads(text.decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8 at byte {error.start}") from None
        except (ValueError, RecursionError) as error:
            where = (
                f"{error.msg.removesuffix(' at')} at column {error.colno}"
                if isinstance(error, json.JSONDecodeError)
                else str(error)
            )
            raise ValueError(f"not JSON: {where}{cut}") from None
        if not isinstance(values, dict):
            raise ValueError(f"not a JSON object but {_short(values)}")
        return cls(values)

    def of_kind(self, name: str, kind: type) -> Any:
        """Return a required value of a given type."""
        value = self.values.get(name, MISSING)
        if value is MISSING:
            raise ValueError(f"{name} is missing")
        if not isinstance(value, kind):
            raise ValueError(f"{name} must be {_KINDS[kind]}, not {_short(value)}")
        return value

    def state(self) -> TaskState:
        """Return the state."""
        value = self.of_kind("state", str)
        try:
            return TaskState(value)
        except ValueError:
            raise ValueError(f"state must be one of {', '.join(TaskState)}, not {_short(value)}") from None

    def score(self, state: TaskState) -> float | None:
        """Return the score; None only for a pending or active task without one."""
        value = self.values.get("score", MISSING)
        if value is MISSING:
            raise ValueError("score is missing")
        if value is None and state in (TaskState.PENDING, TaskState.ACTIVE):
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise ValueError(f"score of {state} must be a number, not {_short(value)}")
        return float(value)

    def moment(self, name: str) -> datetime | None:
        """Return a time, None if the value is null."""
        if self.values.get(name, MISSING) is None:
            return None
        text = self.of_kind(name, str)
        try:
            return read_time(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    def fields(self) -> dict[bytes, bytes]:
        """Return the fields of the hash except message and state."""
        found: dict[bytes, bytes] = {}
        for name, value in self.of_kind("fields", dict).items():
            is_bytes = isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str)
            if not is_bytes and not isinstance(value, str):
                raise ValueError(f"fields: {name} must be a text or an object with base64, not {_short(value)}")
            key = _word(name, f"fields: {name!r}")
            if not key or key in OWN_FIELDS or key.startswith(b"move_"):
                raise ValueError(f"fields: {name!r} cannot be among them")
            where = f"fields: {name}"
            found[key] = _bytes(value["base64"], where) if is_bytes else _word(value, where)
            if key == SINCE and not (found[key].isdigit() and len(found[key]) <= NS_DIGITS):
                raise ValueError(f"{where} must be nanoseconds since 1970, not {_short(value)}")
        return found


_KINDS: Final[dict[type, str]] = {str: "a text", dict: "an object"}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _word(text: str, where: str) -> bytes:
    try:
        return id_word(text)
    except UnicodeEncodeError:
        raise ValueError(f"{where} cannot be written as UTF-8") from None


def _bytes(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{where} is not base64: {error}") from None


def _check_agreement(line: Line, found: Read) -> None:
    """Refuse a line whose readable fields contradict its message, since an edit of these fields would be lost."""
    score = None if line.score is None else repr(line.score).encode()
    hash_fields = {**line.fields, b"msg": line.message, b"state": line.state.value.encode()}
    listed = WalkedTask(id_word(line.id), score or b"", hash_fields)
    info = describe_listed(line.queue, line.state, listed, _ANY_TIME)
    assert info is not None  # its message can be decoded, and it has the state that was asked for
    for name, value in readable(info, line.decoded.unique_key).items():
        said = found.values.get(name, value)
        if said != value:
            raise ValueError(f"{name} is {_short(said)}, but the message has {_short(value)}; a line cannot be edited")


_ANY_TIME: Final = datetime.fromisoformat("2000-01-01T00:00:00Z")
