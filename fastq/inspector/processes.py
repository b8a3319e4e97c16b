"""The inspector's view of servers, schedulers, cluster nodes and Redis."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from fastq.broker.inspect.redis_state import cluster_info, redis_info
from fastq.broker.inspect.servers import (
    SlotRange,
    cluster_slots,
    list_history,
    read_scheduler_entries,
    read_scheduler_ticks,
    read_servers,
    slot_of,
)
from fastq.broker.operation import Flow, Operation
from fastq.broker.operations.presence import notice_of
from fastq.broker.operations.schedulers import TickOutcome
from fastq.errors import InvalidMessageError
from fastq.inspector.checks import check_page, check_queue
from fastq.inspector.driver import Driver, operation
from fastq.inspector.records import ClusterNode, ServerInfo
from fastq.inspector.tasks import DEFAULT_PAGE_SIZE
from fastq.options import check_text
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry, ServerInfoMessage, WorkerInfo
from fastq.wire.notice import ServerNotice
from fastq.wire.records import (
    decode_scheduler_enqueue_event,
    decode_scheduler_entry,
    decode_server_info,
    decode_worker_info,
)

SECOND_NS: Final = 1_000_000_000
MOST_SLOT: Final = 16_383
SHOWN_STATUS: Final = {"stopped": "quiet", "closed": "stopping"}
"""fastq's words for asynq's statuses, since a server that is "stopped" in asynq is only quiet and has not shut down."""

T = TypeVar("T")

_log = logging.getLogger("fastq.inspector")


class ServerMethods(Driver):
    """The inspector's view of servers, schedulers, cluster nodes and Redis."""

    @operation
    def servers(self) -> Flow[list[ServerInfo]]:
        """List the running servers of Go and fastq, with the tasks that each is working on."""
        return running_servers(self._now_ns())

    @operation
    def scheduler_entries(self) -> Flow[list[SchedulerEntry]]:
        """List the periodic tasks of all running schedulers."""
        found = yield from read_scheduler_entries(self._now_ns() // SECOND_NS)
        return sorted(
            _decoded(decode_scheduler_entry, found), key=lambda entry: (entry.spec, entry.task_type, entry.id)
        )

    @operation
    def scheduler_ticks(self) -> Flow[dict[str, dict[str, int]]]:
        """Count the ticks of all fastq schedulers so far, by type of task and by outcome.

        Outcomes: "enqueued"; "duplicate" (the id or the unique lock of the task was taken); "failed" (``pre_enqueue``
        raised, or the task cannot be enqueued); "missed" (left out by the policy for missed ticks; at most 1000 missed
        ticks of an entry are counted at a time). The counts expire 90 days after the last tick.
        """
        counts = yield read_scheduler_ticks()
        types = sorted({task_type for _, task_type in counts})
        return {kind: {outcome.value: counts.get((outcome, kind), 0) for outcome in TickOutcome} for kind in types}

    @operation
    def list_scheduler_enqueue_events(
        self, entry_id: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE
    ) -> Flow[list[SchedulerEnqueueEvent]]:
        """Read a page of the times when an entry's task was enqueued, the latest first; Redis keeps 1000 per entry."""
        start, count = check_page(page, page_size)
        found = yield list_history(check_text(entry_id, "entry_id"), start, count)
        return list(_decoded(decode_scheduler_enqueue_event, found))

    @operation
    def cluster_key_slot(self, queue: str) -> Flow[int]:
        """Return the Redis Cluster slot of a queue's keys; computed locally."""
        yield from ()
        return slot_of(check_queue(queue))

    @operation
    def cluster_nodes(self, queue: str) -> Flow[list[ClusterNode]]:
        """List the nodes of a Redis Cluster that have a queue's keys, the master first."""
        slot = slot_of(check_queue(queue))
        return _nodes((yield cluster_slots()), slot, slot)

    @operation
    def all_cluster_nodes(self) -> Flow[list[ClusterNode]]:
        """List the nodes of a Redis Cluster that serve slots, each master before its replicas."""
        return _nodes((yield cluster_slots()))

    @operation
    def redis_info(self) -> Flow[Mapping[str, str]]:
        """Read Redis' INFO, with the names that Redis uses; not every Redis user has the right to read it."""
        return _one(redis_info())

    @operation
    def cluster_info(self) -> Flow[Mapping[str, str]]:
        """Read the CLUSTER INFO of a Redis Cluster."""
        return _one(cluster_info())


def _nodes(ranges: Sequence[SlotRange], first: int = 0, last: int = MOST_SLOT) -> list[ClusterNode]:
    """Return the nodes that serve any of the slots from ``first`` to ``last``."""
    slots, nodes = Counter[str](), dict[str, ClusterNode]()
    for span in ranges:
        for place, (node_id, host, port) in enumerate(span.nodes):
            slots[node_id] += span.last - span.first + 1
            if span.first <= last and first <= span.last:
                nodes.setdefault(node_id, ClusterNode(node_id, f"{host}:{port}", place == 0, 0))
    return [replace(node, slots=slots[node.id]) for node in nodes.values()]


def _one(operation: Operation[T]) -> Flow[T]:
    found: T = yield operation
    return found


def running_servers(now_ns: int) -> Flow[list[ServerInfo]]:
    """List the servers with a recent heartbeat, by host and process."""
    found = yield from read_servers(now_ns // SECOND_NS)
    running = [
        _described(info, workers, notice_of(notice))
        for data, workers, notice in found
        for info in _decoded(decode_server_info, [data])
    ]
    return sorted(running, key=lambda server: (server.host, server.pid, server.id))


def _started(worker: WorkerInfo) -> tuple[float, str]:
    return (worker.start_time.timestamp() if worker.start_time else 0.0), worker.task_id


def _decoded(decode: Callable[[bytes], T], found: Iterable[bytes]) -> Iterator[T]:
    """Decode entries that other programs wrote; an unreadable entry does not hide the others."""
    for data in found:
        try:
            yield decode(data)
        except InvalidMessageError as error:
            _log.warning("left an unreadable entry out of the list: %s: %r", error, data[:100])


def _described(info: ServerInfoMessage, workers: Sequence[bytes], told: ServerNotice | None) -> ServerInfo:
    return ServerInfo(
        id=info.server_id,
        host=info.host,
        pid=info.pid,
        concurrency=info.concurrency,
        queues=info.queues,
        strict_priority=info.strict_priority,
        started=info.start_time,
        status=SHOWN_STATUS.get(info.status, info.status),
        active_workers=tuple(sorted(_decoded(decode_worker_info, workers), key=_started)),
        children=() if told is None else told.children,
        places=() if told is None else told.places,
    )
