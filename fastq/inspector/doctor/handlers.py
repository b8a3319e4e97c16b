"""Checks by what servers tell of themselves: types of tasks that none has a handler for, archives that Go's trim."""

from collections.abc import Iterable, Sequence
from typing import Final

from fastq._muxmatch import PatternIndex
from fastq.broker.inspect.notices import read_servers
from fastq.broker.inspect.registry import read_registry
from fastq.broker.inspect.tasks import FoundTask, list_ids, read_tasks
from fastq.broker.operation import Flow, together
from fastq.broker.operations.archive_rule import ArchiveRule, read_archive_rule
from fastq.errors import InvalidMessageError
from fastq.inspector.doctor.finding import Finding, Level, unseen
from fastq.states import TaskState
from fastq.wire.codec import view_task_message
from fastq.wire.notice import ServerNotice

__all__ = ["check_handlers"]

SAMPLED: Final = 100
"""Tasks of a state that are looked at: those that are next."""
SHOWN: Final = 5


def check_handlers(queues: Sequence[str]) -> Flow[list[Finding]]:
    """Look at a few tasks of each queue that is served, and at who serves it."""
    registry = yield from read_registry()
    servers = yield from read_servers([one.key for one in registry if one.listed_in == "servers" and one.ttl_ms != -2])
    findings: list[Finding] = []
    for queue in queues:
        serving = [server for server in servers if queue in server.queues]
        if taking := [server.notice for server in serving if server.is_active]:
            findings += yield from _check_types(queue, taking)
        if serving:  # an archive is trimmed by those that are quiet, too
            findings += yield from _check_archive(queue, [server.notice for server in serving])
    return findings or [Finding("task types", Level.OK, f"queues: {len(queues)}; no type without a handler was seen")]


def _check_types(queue: str, serving: Sequence[ServerNotice | None]) -> Flow[list[Finding]]:
    known = PatternIndex()
    for pattern in {pattern for notice in serving if notice is not None for pattern in notice.patterns}:
        known.add(pattern)
    types = yield from _sampled_types(queue)
    unknown = [type_ for type_ in types if known.find(type_) is None]
    if not unknown:
        return []
    if any(notice is None or notice.left_out for notice in serving):
        why = "cannot tell: Go's servers, and older ones of fastq, do not say which types they have handlers for"
        return [unseen("task types", why, queue)]
    return [
        Finding(
            "task types",
            Level.PROBLEM,
            f"{len(unknown)} of {len(types)} tasks looked at have a type without a handler on any server of the queue",
            why="each of their attempts fails, and finally they are archived",
            advice="start servers with the handlers before producers that use them; then fastq task run-all -s retry",
            queue=queue,
            count=len(unknown),
            examples=tuple(sorted(set(unknown))[:SHOWN]),
        )
    ]


def _sampled_types(queue: str) -> Flow[list[str]]:
    """Return the types of those tasks that are next, 100 a state and 256 kB at most."""
    types: list[str] = []
    for state in (TaskState.PENDING, TaskState.RETRY):
        ids: list[bytes] = yield list_ids(queue, state, "", 0, SAMPLED)
        tasks: list[FoundTask] = []
        if ids:
            tasks = yield read_tasks(queue, ids)
        types += _types(tasks)
    return types


def _types(tasks: Iterable[FoundTask]) -> list[str]:
    types = []
    for task in tasks:
        try:
            if task.message is not None:
                types.append(view_task_message(task.message).type)
        except InvalidMessageError:
            continue  # another check tells of it
    return types


def _check_archive(queue: str, serving: Sequence[ServerNotice | None]) -> Flow[list[Finding]]:
    (rule,) = yield from together(read_archive_rule(queue))
    if rule == ArchiveRule() or None not in serving:
        return []
    return [
        Finding(
            "archive",
            Level.WARNING,
            f"{serving.count(None)} of the queue's {len(serving)} servers are asynq servers, or older fastq servers",
            why="these trim this archive at 10 000 tasks and 90 days, whatever its rule says",
            advice="let fastq's servers alone serve this queue, or do without a rule of its own",
            queue=queue,
            count=serving.count(None),
        )
    ]
