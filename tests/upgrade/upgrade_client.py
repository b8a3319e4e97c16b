"""A client of either version, run by that version's Python: ``produce URL NAME SECONDS FILE`` or ``read URL``.

It uses only what both versions have, except that a producer that can wait for results also does so.
"""

import dataclasses
import json
import sys
import time
from datetime import datetime, timedelta
from typing import Any

from fastq import Client, Inspector, Task

BATCH = 40
PAUSE_S = 0.2
AWAITED_S = 150.0
PAGE = 500


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def tasks_of(name: str, number: int) -> list[Task]:
    """Return the tasks of a batch, of each kind some."""

    def make(kind: str, at: int, **options: Any) -> Task:
        task_id = f"{name}-{number}-{at}-{kind}"
        return Task(kind, task_id.encode(), task_id=task_id, queue="ab"[at % 2], **options)

    kinds: list[tuple[str, dict[str, Any]]] = [
        ("plain", {}),
        ("kept", {"retention": 3600}),
        ("async", {}),
        ("flaky", {"max_retry": 5}),
        ("late", {"process_in": 2}),
        ("plain", {"group": "g"}),
        ("plain", {}),
        ("unique", {"unique": 3600}),
    ]
    made = [make(kind, at, **options) for at in range(BATCH) for kind, options in (kinds[at // 2 % len(kinds)],)]
    if number % 5 == 0:
        made.append(make("broken", BATCH))
    if number % 3 == 0:
        made.append(make("long", BATCH + 1))
    return made


def produce(url: str, name: str, seconds: str, path: str) -> None:
    """Enqueue tasks for a while, and write the id of each that was acknowledged into a file."""
    end_s, number = time.monotonic() + float(seconds), 0
    handles: dict[str, Any] = {}
    with Client(url) as client, open(path, "w") as file:
        while time.monotonic() < end_s:
            for result in client.enqueue_many(tasks_of(name, number)):
                if isinstance(result, Exception):
                    raise result
                file.write(f"{result.id}\n")
            if hasattr(client, "submit") and number % 5 == 0:
                task_id = f"{name}-{number}-s-kept"
                handles[task_id] = client.submit("kept", task_id.encode(), task_id=task_id, queue="a")
                file.write(f"{task_id}\n")
            file.flush()
            number += 1
            time.sleep(PAUSE_S)
        until_s = time.monotonic() + AWAITED_S
        for task_id, handle in handles.items():
            result = handle.result(timeout=max(1.0, until_s - time.monotonic()))
            assert result == task_id.encode(), (task_id, result)
    say(f"{name}: {number} batches; {len(handles)} results awaited, all came")


def read(url: str) -> None:
    """Print each task that is kept, a line of JSON each, with the fields that both versions have."""
    with Inspector(url) as inspector:
        for queue in inspector.queues():
            for state in ("completed", "archived"):
                page = 1
                while found := inspector.list_tasks(queue, state, page=page, page_size=PAGE):
                    for task in found:
                        say(json.dumps(plain(task), sort_keys=True))
                    page += 1


def plain(task: Any) -> dict[str, Any]:
    """Return a task's fields as JSON, without those that only one version has."""
    fields = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    fields.pop("lost", None)
    fields.pop("progress", None)
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, datetime | timedelta):
        return str(value)
    return dict(value) if hasattr(value, "keys") else str(value)


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    produce(*words) if command == "produce" else read(*words)
