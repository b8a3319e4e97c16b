"""Counts and deletes fastq's own keys in Redis, which asynq does not know, for users who leave fastq."""

from collections import Counter
from typing import Final

from fastq.broker.inspect.keyspace import KeyPage, scan_keys
from fastq.broker.inspect.move import count_parked
from fastq.broker.inspect.servers import list_schedulers, read_servers
from fastq.broker.operation import Flow, Operation, together
from fastq.broker.operations.keyed import count_again
from fastq.broker.operations.schedulers import OWN_SCHEDULER
from fastq.errors import FastqError, QueueNotEmptyError
from fastq.inspector.doctor.key_kinds import NamedKey, name_key
from fastq.inspector.doctor.places import is_sendable
from fastq.inspector.doctor.walk import find_nodes
from fastq.inspector.driver import Driver, action, operation
from fastq.inspector.lanes import waiting_in_lanes
from fastq.wire import keys
from fastq.wire.records import decode_server_info

SECOND_NS: Final = 1_000_000_000
KEYS_A_TRIP: Final = 500
_IN_LANES: Final = (
    "{number} tasks of queue {queue!r} wait in lanes, which are groups that nobody serves to Go's servers; let fastq's "
    "workers drain them, or run each lane: fastq task run-all --queue {queue} --state aggregating --group LANE"
)


class LeavingMethods(Driver):
    """The inspector's methods for users who leave fastq."""

    @operation
    def own_keys(self) -> Flow[dict[str, int]]:
        """Count the keys that asynq does not know, by kind, such as "history"; changes nothing.

        All keys of Redis are scanned, in chunks.
        """
        found, _, _ = yield from _find()
        return dict(sorted(Counter(map(_kind, found)).items()))

    @action
    def delete_own_keys(self) -> Flow[int]:
        """Delete the keys that asynq does not know, 500 at a time, and return how many; tasks and queues stay.

        ``FastqError`` while servers or schedulers of fastq run, since they would write such keys again.
        ``QueueNotEmptyError`` while an interrupted move has left tasks between two queues, while tasks wait in lanes,
        or while a task that was enqueued by key during a run still waits for a fastq server to put it into its queue.
        """
        if running := (yield from _running(self._now_ns() // SECOND_NS)):
            raise FastqError(f"these run: {', '.join(running)}; stop them first, since they write such keys")
        found, between, behind = yield from _find()
        for queue in sorted(between):
            raise QueueNotEmptyError(queue, {"moving": (yield count_parked(queue))})
        for queue in sorted(behind):
            raise QueueNotEmptyError(queue, {"behind a run": (yield count_again(queue))})
        for queue in sorted(named.queue for named in found if named.queue and named.key == keys.limits(named.queue)):
            if waiting := (yield from waiting_in_lanes(queue)):
                raise FastqError(_IN_LANES.format(number=waiting, queue=queue))
        names, deleted = sorted(named.key for named in found), 0
        for at in range(0, len(names), KEYS_A_TRIP):
            some = names[at : at + KEYS_A_TRIP]
            deleted += sum(
                (yield from together(*(Operation("UNLINK", (key,), (), int, idempotent=True) for key in some)))
            )
        return deleted


def _find() -> Flow[tuple[set[NamedKey], set[str], set[str]]]:
    """Find fastq's own keys, the queues with tasks in a move, and the queues with tasks that wait for a run's end."""
    found, between, behind = set[NamedKey](), set[str](), set[str]()
    for tag in (yield from find_nodes()):
        cursor: str | None = "0"
        while cursor is not None:
            page: KeyPage = yield scan_keys(tag, "asynq:*", cursor)
            for named in map(name_key, filter(is_sendable, page.keys)):
                if named.queue and named.key == keys.again(named.queue):
                    behind.add(named.queue)
                elif named.is_own:
                    found.add(named)
                elif named.queue and named.key == keys.moving(named.queue):
                    between.add(named.queue)
            cursor = page.cursor
    return found, between, behind


def _kind(named: NamedKey) -> str:
    return (named.rest or named.key.removeprefix("asynq:")).partition(":")[0]


def _running(now_s: int) -> Flow[list[str]]:
    """Name the live servers and schedulers of fastq."""
    servers = yield from read_servers(now_s)
    infos = [decode_server_info(info) for info, _, notice in servers if notice is not None]
    schedulers = yield from list_schedulers(now_s)
    ids = [key.partition("{")[2].rstrip("}") for key in schedulers]
    return [
        *(f"server {info.host}:{info.pid}" for info in infos),
        *(f"scheduler {own}" for own, mark, _ in (one.partition(f":{OWN_SCHEDULER}") for one in ids) if mark),
    ]
