"""Checks based on servers' notices: task types without a handler, archives that Go servers trim."""

from collections.abc import Iterable, Sequence
from typing import Final

from fastq._muxmatch import PatternIndex
from fastq.broker.inspect.registry import read_registry
from fastq.broker.inspect.tasks import FoundTask, list_ids, read_tasks
from fastq.broker.operation import Flow, together
from fastq.broker.operations.archive_rule import ArchiveRule, read_archive_rule
from fastq.broker.operations.presence import read_servers
from fastq.common.states import TaskState
from fastq.errors import InvalidMessageError
from fastq.inspector.doctor.finding import Finding, Level, unseen
from fastq.wire.codec import view_task_message
from fastq.wire.notice import ServerNotice

SAMPLED: Final = 100
"""How many tasks of each state are checked: the next ones to run."""
SHOWN: Final = 5


def check_handlers(queues: Sequence[str]) -> Flow[list[Finding]]:
    """Check whether the next tasks of each served queue have handlers, and whether Go servers trim its archive."""
    registry = yield from read_registry()
    servers = yield from read_servers([one.key for one in registry if one.listed_in == "servers" and one.ttl_ms != -2])
    findings: list[Finding] = []
    checked = 0
    for queue in queues:
        serving = [server for server in servers if queue in server.queues]
        if taking := [server.notice for server in serving if server.is_active]:
            findings += yield from _check_types(queue, taking)
            checked += 1
        if serving:  # quiet servers trim the archive, too
            findings += yield from _check_archive(queue, [server.notice for server in serving])
    seen = "every type seen has a handler" if checked else "no server is there whose handlers could be compared"
    return findings or [Finding("task types", Level.OK, f"queues: {checked} of {len(queues)}; {seen}")]


def _check_types(queue: str, serving: Sequence[ServerNotice | None]) -> Flow[list[Finding]]:
    known = PatternIndex()
    for pattern in {pattern for notice in serving if notice is not None for pattern in notice.patterns}:
        known.add(pattern)
    types = yield from _sampled_types(queue)
    unknown = [type_ for type_ in types if known.find(type_) is None]
    if not unknown:
        return []
    if any(notice is None or notice.left_out for notice in serving):
        why = "unknown: Go servers and older fastq servers do not publish which types they have handlers for"
        return [unseen("task types", why, queue)]
    return [
        Finding(
            "task types",
            Level.PROBLEM,
            f"{len(unknown)} of {len(types)} tasks checked have a type without a handler on any server of the queue",
            why="each of their attempts fails, and finally they are archived",
            advice="start servers with the handlers before producers that use them; then fastq task run-all -s retry",
            queue=queue,
            count=len(unknown),
            examples=tuple(sorted(set(unknown))[:SHOWN]),
        )
    ]


def _sampled_types(queue: str) -> Flow[list[str]]:
    """Return the types of the next tasks, at most 100 and 256 kB per state."""
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
            continue  # another check reports it
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
            advice="serve this queue with fastq servers only, or remove its archive rule",
            queue=queue,
            count=serving.count(None),
        )
    ]
