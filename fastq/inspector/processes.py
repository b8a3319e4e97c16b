"""What an inspector reads of servers, schedulers and cluster nodes, as flows."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from fastq.broker.inspect.servers import (
    SlotRange,
    cluster_slots,
    list_history,
    read_scheduler_entries,
    read_servers,
    slot_of,
)
from fastq.broker.operation import Flow
from fastq.errors import InvalidMessageError
from fastq.inspector.checks import check_page, check_queue
from fastq.inspector.records import ClusterNode, ServerInfo
from fastq.options import check_text
from fastq.wire.codec import (
    decode_scheduler_enqueue_event,
    decode_scheduler_entry,
    decode_server_info,
    decode_worker_info,
)
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry, WorkerInfo

__all__ = ["cluster_key_slot", "cluster_nodes", "list_scheduler_enqueue_events", "scheduler_entries", "servers"]

SECOND_NS: Final = 1_000_000_000
SHOWN_STATUS: Final = {"stopped": "quiet", "closed": "stopping"}
"""Our words for asynq's, as ``stop`` means to shut down everywhere else."""

T = TypeVar("T")

_log = logging.getLogger("fastq.inspector")


def servers(now_ns: int) -> Flow[list[ServerInfo]]:
    """List the servers that sent a heartbeat of late, by host and process."""
    found = yield from read_servers(now_ns // SECOND_NS)
    running = [
        ServerInfo(
            id=info.server_id,
            host=info.host,
            pid=info.pid,
            concurrency=info.concurrency,
            queues=info.queues,
            strict_priority=info.strict_priority,
            started=info.start_time,
            status=SHOWN_STATUS.get(info.status, info.status),
            active_workers=tuple(sorted(_decoded(decode_worker_info, workers), key=_started)),
        )
        for data, workers in found
        for info in _decoded(decode_server_info, [data])
    ]
    return sorted(running, key=lambda server: (server.host, server.pid, server.id))


def _started(worker: WorkerInfo) -> tuple[float, str]:
    return (worker.start_time.timestamp() if worker.start_time else 0.0), worker.task_id


def scheduler_entries(now_ns: int) -> Flow[list[SchedulerEntry]]:
    """List the periodic tasks of all schedulers that sent a heartbeat of late, by spec, type and id."""
    found = yield from read_scheduler_entries(now_ns // SECOND_NS)
    return sorted(_decoded(decode_scheduler_entry, found), key=lambda entry: (entry.spec, entry.task_type, entry.id))


def list_scheduler_enqueue_events(entry_id: str, page: int, page_size: int) -> Flow[list[SchedulerEnqueueEvent]]:
    """Read a page of when an entry's task was enqueued, the latest first."""
    start, count = check_page(page, page_size)
    found = yield list_history(check_text(entry_id, "entry_id"), start, count)
    return list(_decoded(decode_scheduler_enqueue_event, found))


def _decoded(decode: Callable[[bytes], T], found: Iterable[bytes]) -> Iterator[T]:
    """Decode what a peer wrote; what cannot be read hides nothing else."""
    for data in found:
        try:
            yield decode(data)
        except InvalidMessageError as error:
            _log.warning("left out of the list: %s: %r", error, data[:100])


def cluster_key_slot(queue: str) -> int:
    """Return the slot of a cluster in which all keys of a queue are."""
    return slot_of(check_queue(queue))


def cluster_nodes(queue: str) -> Flow[list[ClusterNode]]:
    """List the nodes that have a queue's keys, the master first."""
    slot = cluster_key_slot(queue)
    ranges: list[SlotRange] = yield cluster_slots()
    return [
        ClusterNode(node_id, f"{host}:{port}")
        for span in ranges
        if span.first <= slot <= span.last
        for node_id, host, port in span.nodes
    ]
