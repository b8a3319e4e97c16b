"""Assertions that a task was enqueued; a failure shows what was enqueued instead."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import orjson

from fastq.broker.inspect.queues import group_sizes, list_queues
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import BlockingRedis, open_broker
from fastq.client import AsyncClient, Client
from fastq.common.states import TaskState
from fastq.info import TaskInfo
from fastq.inspector.tasks import Listing
from fastq.task import encode_payload
from fastq.testing.inline import AsyncInlineClient, InlineClient

WAITING: Final = (TaskState.PENDING, TaskState.SCHEDULED, TaskState.RETRY)
MAX_SHOWN: Final = 10
MAX_TEXT: Final = 200
PIECE: Final = 200
FIELDS: Final = tuple(TaskInfo.__dataclass_fields__)
_ANY: Final[Any] = object()


def assert_enqueued(
    where: Client | AsyncInlineClient | BlockingRedis | str,
    type: str,
    *,
    payload: Any = _ANY,
    count: int | None = None,
    **expected: Any,
) -> list[TaskInfo]:
    """Return the enqueued tasks of a type; if there is none, ``AssertionError`` shows what was enqueued instead.

    In Redis, given by URL or ``Client``, the waiting tasks are checked: pending, scheduled, in retry, in a group. In an
    inline client, all enqueued tasks are checked. A ``payload`` that is not bytes is compared as JSON. ``expected`` are
    fields of ``TaskInfo`` (queue, headers, group, max_retry, state ...). ``count`` is the expected number, which may be
    0.

    >>> from fastq.mux import ServeMux
    >>> client = InlineClient(ServeMux())
    >>> _ = client.enqueue("mail:send", {"to": "ann"}, queue="low")
    >>> [info] = assert_enqueued(client, "mail:send", payload={"to": "ann"}, queue="low")
    >>> info.max_retry
    25
    >>> assert_enqueued(client, "mail:send", payload={"to": "bob"})
    Traceback (most recent call last):
    AssertionError: no task 'mail:send' with payload={'to': 'bob'} was enqueued; these were:
      'mail:send' in queue low, pending: payload is {'to': 'ann'}
    """
    wanted = {**expected} if payload is _ANY else {"payload": payload, **expected}
    if unknown := wanted.keys() - set(FIELDS):
        raise TypeError(f"assert_enqueued: TaskInfo has no {', '.join(sorted(unknown))}; it has {', '.join(FIELDS)}")
    found = list(_tasks_of(where))
    matching = [info for info in found if info.type == type and not _differences(info, wanted)]
    if bool(matching) if count is None else len(matching) == count:
        return matching
    raise AssertionError(_explain(found, type, wanted, None if count is None else (len(matching), count)))


def _tasks_of(where: Client | AsyncInlineClient | BlockingRedis | str) -> Iterator[TaskInfo]:
    if isinstance(where, InlineClient | AsyncInlineClient):
        yield from where.enqueued
    elif isinstance(where, AsyncClient):
        raise TypeError("assert_enqueued is not async: give it the Redis URL instead of an AsyncClient")
    elif isinstance(where, Client):
        yield from _waiting_in(where._broker)
    else:
        with closing(open_broker(where)) as broker:
            yield from _waiting_in(broker)


def _waiting_in(broker: BlockingBroker) -> Iterator[TaskInfo]:
    for queue in broker.run(list_queues()):
        for state in WAITING:
            yield from _listed(broker, Listing.of(queue, state, None))
        for group in broker.drive(group_sizes(queue)):
            yield from _listed(broker, Listing.of(queue, TaskState.AGGREGATING, group))


def _listed(broker: BlockingBroker, listing: Listing) -> Iterator[TaskInfo]:
    for ids in listing.pieces(broker.drive(listing.ids()), PIECE):
        yield from broker.drive(listing.read(ids, time.time_ns()))


def _differences(info: TaskInfo, wanted: Mapping[str, Any]) -> list[str]:
    """Return the fields in which a task differs from the expected values."""
    return [
        f"{name} is {_shown(getattr(info, name), value)}"
        for name, value in wanted.items()
        if not _is_equal(getattr(info, name), value)
    ]


def _is_equal(found: Any, value: Any) -> bool:
    if isinstance(found, bytes) and not isinstance(value, bytes):
        return bool(_decoded(found) == _decoded(encode_payload(value)))
    return bool(found == value)


def _decoded(data: bytes) -> Any:
    """Return decoded JSON, or the bytes if they are not JSON."""
    try:
        return orjson.loads(data)
    except ValueError:
        return data


def _shown(found: Any, value: Any) -> str:
    text = repr(_decoded(found) if isinstance(found, bytes) and not isinstance(value, bytes) else found)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def _explain(found: list[TaskInfo], type: str, wanted: Mapping[str, Any], counts: tuple[int, int] | None) -> str:
    """Describe the expected task, and list the enqueued ones, the most similar first."""
    task = repr(type) + (f" with {', '.join(f'{name}={value!r}' for name, value in wanted.items())}" if wanted else "")
    title = f"no task {task} was enqueued"
    if counts is not None:
        title = f"{counts[0]} tasks {task} were enqueued, not {counts[1]}"
    nearest = sorted(found, key=lambda info: (info.type != type, len(_differences(info, wanted))))
    lines = [
        f"  {info.type!r} in queue {info.queue}, {info.state.value}"
        f"{': ' if (wrong := _differences(info, wanted)) else ''}{'; '.join(wrong)}"
        for info in nearest[:MAX_SHOWN]
    ]
    if len(found) > MAX_SHOWN:
        lines.append(f"  and {len(found) - MAX_SHOWN} more")
    return "\n".join([f"{title}; these were:", *lines]) if lines else f"{title}, nor any other task"
