"""The requests of the main process to the runners in its children, as bytes, and the answers to these requests.

Runners are loaded by name, since only children import them. A request is a line of JSON and the messages after it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from fastq.broker.operations.enqueue import NewTask
from fastq.common.states import TaskState

HANDLER_RUNNER: Final = "fastq.worker.child.handler_runner:load"
HOOK_RUNNER: Final = "fastq.worker.child.hook_runner:load"
AGGREGATION_RUNNER: Final = "fastq.worker.child.aggregation_runner:load"


def runner_argument(
    app: str,
    *,
    log: tuple[str, str, str] = ("", "", "never"),
    aggregator: str | None = None,
    health_check: str | None = None,
    threads: bool = False,
    **hooks: str | None,
) -> str:
    """Return the argument for the handler runner's ``load``: the names of the app and its hooks, and how to log.

    ``log`` is the level, the format, and which tracebacks are logged. With ``threads``, plain handlers run in threads.

    ``aggregator`` and ``health_check`` run in other children. The handler's child imports both, too, so that the server
    does not start if a name is wrong or an import fails.
    """
    order = {
        "app": app,
        "log": log,
        "aggregator": aggregator,
        "health_check": health_check,
        "threads": threads,
        "hooks": hooks,
    }
    return orjson.dumps(order).decode()


def judge_request(error: str, text: str, message: bytes) -> bytes:
    """Return the request to let the hooks decide what follows from an error; ``error`` is a key of ``ERRORS``."""
    return orjson.dumps({"judge": error, "text": text}) + b"\n" + message


def health_request(error: str | None) -> bytes:
    """Return the request to call the health check with None or an error's text."""
    return orjson.dumps({"health": error}) + b"\n"


def credentials_request(name: str) -> bytes:
    """Return the request to call the function that returns the credentials for Redis."""
    return orjson.dumps({"credentials": name}) + b"\n"


@dataclass(frozen=True, slots=True)
class Combined:
    """The task that replaces a set, ready to be enqueued, and the unique locks of the set's tasks by index."""

    task: NewTask
    state: TaskState
    now_ns: int
    locks: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The reasons why messages of a set cannot be decoded, by index. The aggregator was not called."""

    reasons: Mapping[int, str]


def aggregation_request(queue: str, group: str, messages: Sequence[bytes]) -> bytes:
    """Return the request to aggregate the tasks of a group."""
    head = {"queue": queue, "group": group, "sizes": [len(message) for message in messages]}
    return b"".join((orjson.dumps(head), b"\n", *messages))


def aggregation_answer(data: bytes) -> Combined | Unreadable:
    """Decode an answer of the aggregation runner."""
    head, _, message = data.partition(b"\n")
    answer: dict[str, Any] = orjson.loads(head)
    if "unreadable" in answer:
        return Unreadable({int(index): why for index, why in answer["unreadable"].items()})
    task = NewTask(message=message, **answer["task"])
    locks = {int(index): lock for index, lock in answer["locks"].items()}
    return Combined(task, TaskState(answer["state"]), answer["now_ns"], locks)


def aggregation_argument(aggregator: str, app: str | None = None) -> str:
    """Return the argument for the aggregation runner's ``load``."""
    return orjson.dumps((aggregator, app)).decode()
