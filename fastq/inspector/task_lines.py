"""A task as one line of JSON: readable fields for people and jq, and the exact bytes of the task in Redis. ``message``
is the encoded TaskMessage in base64, ``fields`` are all other fields of the task's hash. The task can be restored from
these two, ``score`` and ``unique_until``. Export writes such lines, and so do servers whose archives spill. Import
reads them.
"""

import base64
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastq.broker.inspect.put import lock_of, read_lock
from fastq.broker.inspect.tasks import FoundTask
from fastq.broker.operation import Flow, together
from fastq.broker.operations.lease import lost_count
from fastq.broker.operations.walk import Source, WalkedTask, WalkPage
from fastq.common.states import TaskState
from fastq.errors import InvalidMessageError
from fastq.info import TaskInfo
from fastq.inspector.json_records import task_record, time_text
from fastq.inspector.tasks import describe
from fastq.wire.codec import view_task_message

NS: Final = 1_000_000_000
GREATEST: Final = sys.float_info.max
OWN_FIELDS: Final = frozenset({b"msg", b"state"})
FOR_EVER: Final = -1
NOT_HELD: Final = -2
_TIMED: Final = frozenset({TaskState.SCHEDULED, TaskState.RETRY})


def lines_of(
    source: Source, page: WalkPage, now: datetime, wants: Callable[[TaskInfo], bool] = lambda info: True
) -> Flow[list[tuple[WalkedTask, str]]]:
    """Return the wanted tasks of a page, each with its line; a task that left its state meanwhile has none."""
    found: list[tuple[WalkedTask, TaskInfo, str]] = []
    for task in page.tasks:
        info = describe_listed(source.queue, source.state, task, now)
        if info is not None and wants(info):
            found.append((task, info, _unique_key(task)))
    ends = yield from _lock_ends(source.queue, [(task, key) for task, _, key in found])
    return [
        (task, write_line(source.queue, task, info, key, end))
        for (task, info, key), end in zip(found, ends, strict=True)
    ]


def _lock_ends(queue: str, found: list[tuple[WalkedTask, str]]) -> Flow[list[datetime | None]]:
    """Return until when tasks hold their unique locks. For grouped tasks this is read, as asynq's hash does not name
    it.
    """
    left = [task.lock_ms for task, _ in found]
    asked = [at for at, (task, key) in enumerate(found) if lock_of(queue, key) and b"unique_key" not in task.fields]
    if asked:
        replies = yield from together(*(read_lock(found[at][1], found[at][0].id) for at in asked))
        for at, each in zip(asked, replies, strict=True):
            left[at] = each
    now = datetime.now(UTC)
    return [None if each == NOT_HELD else _end(now, each) for each in left]


def _end(now: datetime, left_ms: int) -> datetime:
    return datetime.max.replace(tzinfo=UTC) if left_ms == FOR_EVER else now + timedelta(milliseconds=left_ms)


def _unique_key(task: WalkedTask) -> str:
    try:
        return view_task_message(task.message or b"").unique_key
    except InvalidMessageError:
        return ""


def describe_listed(queue: str, state: TaskState, task: WalkedTask, now: datetime) -> TaskInfo | None:
    """Describe a task that was read from the list or set of a state; None if it is not in that state."""
    found_state = task.fields.get(b"state", b"").decode(errors="replace")
    score = float(task.score) if task.score else None
    lost = lost_count(task.fields.get(b"lost"))
    found = FoundTask(task.message, found_state, task.fields.get(b"result"), score, lost)
    info = describe(queue, task.id, found, int(now.timestamp() * NS))
    return info if info is not None and info.state is state else None


def write_line(queue: str, task: WalkedTask, info: TaskInfo, unique_key: str, unique_until: datetime | None) -> str:
    """Write a task as a line; an infinite score becomes the greatest finite number, since JSON has no infinity."""
    score = max(-GREATEST, min(float(task.score), GREATEST)) if task.score else None
    line = {
        **readable(info, unique_key),
        "id": _text(task.id),
        "queue": queue,
        "unique_until": time_text(unique_until),
        "score": int(score) if score is not None and score.is_integer() and abs(score) < GREATEST else score,
        "fields": {_text(name): _value(data) for name, data in task.fields.items() if name not in OWN_FIELDS},
        "message": base64.b64encode(task.message or b"").decode(),
    }
    return json.dumps(line)


def readable(info: TaskInfo, unique_key: str) -> dict[str, Any]:
    """Return the fields of a line that can be computed from the task's message and position."""
    record = task_record(info)
    del record["is_orphaned"], record["progress"]
    if info.state not in _TIMED:
        record["next_process_at"] = None
    return {**record, "unique_key": unique_key or None}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _value(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
