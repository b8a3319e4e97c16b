"""Every Redis key and channel of asynq's protocol, one function each, named as in asynq; some are fastq's own.

All keys of a queue share the hash tag ``{queue}``, so a script may touch any of them in a cluster. The keys of servers,
workers and schedulers are tagged by their own id. ``signs``, ``signers`` and ``takeovers`` are in the slot of
``all_servers``. The four ``all_*`` sets, semaphores, and the histories and ticks of schedulers have no tag.
"""

from datetime import UTC, date, datetime
from hashlib import md5
from typing import Final

__all__ = [
    "CANCEL_AS_CHANNEL",
    "CANCEL_CHANNEL",
    "OWN_ASIDE",
    "active",
    "again",
    "aggregation_set",
    "aggregation_sets",
    "all_queues",
    "all_schedulers",
    "all_servers",
    "all_workers",
    "app_limits",
    "archive_rule",
    "archived",
    "bell",
    "completed",
    "control_channel",
    "due_channel",
    "error",
    "error_prefix",
    "errors",
    "failed",
    "failed_total",
    "full",
    "group",
    "group_prefix",
    "groups",
    "held",
    "held_prefix",
    "history_hours",
    "history_minutes",
    "inbox_channel",
    "last_tick",
    "lease",
    "limits",
    "lost",
    "moved",
    "moving",
    "never",
    "paused",
    "pending",
    "pool_prefix",
    "pool_waiting",
    "processed",
    "processed_total",
    "queue_prefix",
    "quota",
    "rates",
    "retry",
    "scheduled",
    "scheduled_groups",
    "scheduler_entries",
    "scheduler_history",
    "scheduler_ticks",
    "semaphore",
    "server_info",
    "server_notice",
    "signers",
    "signs",
    "takeovers",
    "task",
    "task_prefix",
    "tick",
    "turns",
    "unique",
    "unique_for_key",
    "workers",
]

OWN_ASIDE: Final = (
    r"again|moved|archive_rule|scheduled_groups|lost:\d{4}-\d\d-\d\d|history:\d{4}-\d\d-\d\d(T\d\d)?"
    r"|(tick|last_tick):.*|errors|error:[0-9a-f]{16}|limits|app_limits|quota|turns|full|rates|bell|(h|pool):.*"
)
"""A regular expression for the names of keys that fastq adds to a queue, except ``moving``, tasks, locks and groups."""

CANCEL_CHANNEL = "asynq:cancel"
"""The pub/sub channel whose messages are ids of tasks to cancel."""

CANCEL_AS_CHANNEL = "asynq:cancel:as"
"""fastq's own channel for cancellations: JSON with a task's ``id``, its ``queue``, and the wanted ``outcome``."""


def control_channel(server_id: str) -> str:
    """Name the channel for commands to one fastq server (stop, quiet); not asynq's."""
    return f"asynq:control:{server_id}"


def due_channel(queue: str) -> str:
    """Name the channel on which servers hear of a queue's new earliest due time, or of changed rules; not asynq's."""
    return f"asynq:{{{queue}}}:due"


def inbox_channel(inbox: str) -> str:
    """Name the channel on which a client hears of the ends of its tasks; not asynq's."""
    return f"asynq:inbox:{inbox}"


def all_queues() -> str:
    """Name the set of all queue names."""
    return "asynq:queues"


def all_servers() -> str:
    """Name the sorted set of ``server_info`` keys, scored by their expiry in Unix seconds."""
    return "asynq:servers"


def all_workers() -> str:
    """Name the sorted set of ``workers`` keys, scored by their expiry in Unix seconds."""
    return "asynq:workers"


def all_schedulers() -> str:
    """Name the sorted set of ``scheduler_entries`` keys, scored by their expiry in Unix seconds."""
    return "asynq:schedulers"


def server_info(host: str, pid: int, server_id: str) -> str:
    """Name the string that holds one server's ServerInfo."""
    return f"asynq:servers:{{{host}:{pid}:{server_id}}}"


def server_notice(info_key: str) -> str:
    """Name the string that holds the notice of one fastq server, its data beyond the ServerInfo; not asynq's.

    ``info_key`` is that server's ``server_info`` key. The value is JSON: ``format`` (1), ``version`` (of fastq),
    ``data_format`` (of the data that fastq adds to asynq's), ``queues`` (names), ``patterns`` (of its mux),
    ``left_out`` (how many names of queues and patterns did not fit into 64 kB), ``children`` (as many as fit into 32
    kB) and ``places``. It is written with each heartbeat and lives as long as the ServerInfo. Readers skip unknown
    fields.
    """
    return f"asynq:fastq:{info_key[info_key.find('{') :]}"


def signs() -> str:
    """Name the sorted set of the lease marks of running fastq servers, scored by their last sign of life; not asynq's.

    The scores are Unix milliseconds by Redis' clock. The key is in the slot of ``all_servers``.
    """
    return "asynq:fastq:{asynq:servers}:signs"


def signers() -> str:
    """Name the hash that describes the servers in ``signs``: JSON by their lease marks; not asynq's."""
    return "asynq:fastq:{asynq:servers}:signers"


def takeovers() -> str:
    """Name the list of the last takeovers, when fastq servers took the tasks of a server that was gone; not asynq's.

    Its elements are JSON.
    """
    return "asynq:fastq:{asynq:servers}:takeovers"


def workers(host: str, pid: int, server_id: str) -> str:
    """Name the hash of one server's running tasks: task id to WorkerInfo."""
    return f"asynq:workers:{{{host}:{pid}:{server_id}}}"


def scheduler_entries(scheduler_id: str) -> str:
    """Name the list of one scheduler's SchedulerEntry messages; asynq's ids are ``host:pid:uuid``."""
    return f"asynq:schedulers:{{{scheduler_id}}}"


def scheduler_history(entry_id: str) -> str:
    """Name the sorted set of one entry's SchedulerEnqueueEvent messages, scored by Unix seconds."""
    return f"asynq:scheduler_history:{entry_id}"


def scheduler_ticks() -> str:
    """Name the hash of counters of all schedulers' ticks, by ``outcome:type``; not asynq's."""
    return "asynq:scheduler_ticks"


def queue_prefix(queue: str) -> str:
    """Return the prefix of all keys of a queue."""
    return f"asynq:{{{queue}}}:"


def task_prefix(queue: str) -> str:
    """Return the prefix of the keys of a queue's tasks; the id follows."""
    return f"asynq:{{{queue}}}:t:"


def task(queue: str, task_id: str) -> str:
    """Name the hash of one task."""
    return f"asynq:{{{queue}}}:t:{task_id}"


def pending(queue: str) -> str:
    """Name the list of pending ids; the next one to run is at its tail."""
    return f"asynq:{{{queue}}}:pending"


def active(queue: str) -> str:
    """Name the list of active ids: of the tasks that servers have taken."""
    return f"asynq:{{{queue}}}:active"


def lease(queue: str) -> str:
    """Name the sorted set of active ids, scored by the expiry of their lease in Unix seconds."""
    return f"asynq:{{{queue}}}:lease"


def scheduled(queue: str) -> str:
    """Name the sorted set of scheduled ids, scored by when they are due in Unix seconds."""
    return f"asynq:{{{queue}}}:scheduled"


def retry(queue: str) -> str:
    """Name the sorted set of ids in retry, scored by when they are due in Unix seconds."""
    return f"asynq:{{{queue}}}:retry"


def archived(queue: str) -> str:
    """Name the sorted set of archived ids, scored by when they were archived in Unix seconds."""
    return f"asynq:{{{queue}}}:archived"


def completed(queue: str) -> str:
    """Name the sorted set of completed ids, scored by the end of their retention in Unix seconds."""
    return f"asynq:{{{queue}}}:completed"


def moving(queue: str) -> str:
    """Name the sorted set of ids that are being moved from this queue or to it; not asynq's.

    Both queues of a move have such a set.
    """
    return f"asynq:{{{queue}}}:moving"


def moved(queue: str) -> str:
    """Name the hash of tasks that left this queue and may not be in another yet, by ``token:id``; not asynq's."""
    return f"asynq:{{{queue}}}:moved"


def again(queue: str) -> str:
    """Name the hash of messages that were enqueued by key while the task with that key ran, by task id; not asynq's.

    A value is ``run_at:latest:message``: when the task is to run, and the latest such time that later enqueues may set,
    each in Unix seconds or empty.
    """
    return f"asynq:{{{queue}}}:again"


def never(key: str) -> str:
    """Name a key that nobody ever writes, in the slot of the given key; not asynq's.

    A script that builds the names of keys declares this key. While the slot is moving to another node, Redis refuses a
    script that declares a missing key. So no such script runs with only a part of its keys.
    """
    return f"{key.partition('}:')[0]}}}:never"


def archive_rule(queue: str) -> str:
    """Name the hash with the rule of a queue's archive (max, ttl, full) and a counter (dropped); not asynq's."""
    return f"asynq:{{{queue}}}:archive_rule"


def errors(queue: str) -> str:
    """Name the sorted set of fingerprints whose tracebacks a queue keeps, scored by when last seen; not asynq's."""
    return f"asynq:{{{queue}}}:errors"


def error_prefix(queue: str) -> str:
    """Return the prefix of the keys of a queue's tracebacks; the fingerprint follows."""
    return f"asynq:{{{queue}}}:error:"


def error(queue: str, fingerprint: str) -> str:
    """Name the string with the traceback of an error; not asynq's."""
    return f"asynq:{{{queue}}}:error:{fingerprint}"


def paused(queue: str) -> str:
    """Name the string that exists while the queue is paused; its value is the start of the pause in Unix seconds."""
    return f"asynq:{{{queue}}}:paused"


def processed_total(queue: str) -> str:
    """Name the counter of all tasks ever processed, failures included."""
    return f"asynq:{{{queue}}}:processed"


def failed_total(queue: str) -> str:
    """Name the counter of all failures ever."""
    return f"asynq:{{{queue}}}:failed"


def processed(queue: str, day: date) -> str:
    """Name the counter of one UTC day's processed tasks, failures included; an aware datetime is converted to UTC."""
    return f"asynq:{{{queue}}}:processed:{_day_text(day)}"


def failed(queue: str, day: date) -> str:
    """Name the counter of one UTC day's failures; an aware datetime is converted to UTC."""
    return f"asynq:{{{queue}}}:failed:{_day_text(day)}"


def lost(queue: str, day: date) -> str:
    """Name the counter of one UTC day's lost tasks (not asynq's); an aware datetime is converted to UTC."""
    return f"asynq:{{{queue}}}:lost:{_day_text(day)}"


def history_minutes(queue: str, hour: datetime) -> str:
    """Name the hash with a queue's counts for each minute of one UTC hour, by type; not asynq's. See ``history.py``."""
    if hour.utcoffset() is None:
        raise ValueError(f"hour must be a timezone-aware datetime, got the naive {hour!r}")
    return f"asynq:{{{queue}}}:history:{hour.astimezone(UTC):%Y-%m-%dT%H}"


def history_hours(queue: str, day: date) -> str:
    """Name the hash with a queue's counts for each hour of one UTC day; not asynq's. A datetime is converted to UTC."""
    return f"asynq:{{{queue}}}:history:{_day_text(day)}"


def unique(queue: str, task_type: str, payload: bytes | None) -> str:
    """Name the lock of a unique task; ``None``, Go's nil payload, and ``b""`` have different locks."""
    digest = "" if payload is None else md5(payload, usedforsecurity=False).hexdigest()
    return f"asynq:{{{queue}}}:unique:{task_type}:{digest}"


def unique_for_key(queue: str, task_type: str, unique_key: str) -> str:
    """Name the lock of a task that is unique by the caller's own key instead of by its payload."""
    return unique(queue, task_type, unique_key.encode())


def groups(queue: str) -> str:
    """Name the set of a queue's groups."""
    return f"asynq:{{{queue}}}:groups"


def scheduled_groups(queue: str) -> str:
    """Name the sorted set of groups that have, or had, scheduled tasks, scored by the latest due time; not asynq's."""
    return f"asynq:{{{queue}}}:scheduled_groups"


def group_prefix(queue: str) -> str:
    """Return the prefix of the keys of a queue's groups and aggregation sets."""
    return f"asynq:{{{queue}}}:g:"


def group(queue: str, group_name: str) -> str:
    """Name the sorted set of a group's ids, scored by when they joined in Unix seconds."""
    return f"asynq:{{{queue}}}:g:{group_name}"


def aggregation_set(queue: str, group_name: str, set_id: str) -> str:
    """Name the sorted set of ids taken out of a group to become one task."""
    return f"asynq:{{{queue}}}:g:{group_name}:{set_id}"


def aggregation_sets(queue: str) -> str:
    """Name the sorted set of a queue's ``aggregation_set`` keys, scored by their deadline in Unix seconds."""
    return f"asynq:{{{queue}}}:aggregation_sets"


def limits(queue: str) -> str:
    """Name the hash of the rules for a queue's lanes, which exists while there are any; not asynq's.

    A field is a lane, ``pool:*``, ``*`` for all lanes without a field of their own, or "" for the queue itself.
    """
    return f"asynq:{{{queue}}}:limits"


def app_limits(queue: str) -> str:
    """Name the hash of the rules that apps last declared for a queue; fields are as in ``limits``; not asynq's."""
    return f"asynq:{{{queue}}}:app_limits"


def quota(queue: str) -> str:
    """Name the hash of the limits on a queue's number of tasks, which exists while there are any; not asynq's.

    Its field ``pending`` is how many pending tasks the queue may have.
    """
    return f"asynq:{{{queue}}}:quota"


def turns(queue: str) -> str:
    """Name the sorted set of lanes that have tasks, scored by when they may be served (Unix us); not asynq's."""
    return f"asynq:{{{queue}}}:turns"


def full(queue: str) -> str:
    """Name the sorted set of lanes without a free slot, scored by when to look at them again (Unix us); not asynq's.

    It may also contain pools, as ``pool:*``, and "" for the queue itself.
    """
    return f"asynq:{{{queue}}}:full"


def held_prefix(queue: str) -> str:
    """Return the prefix of a queue's ``held`` keys; a lane, or ``pool:*``, follows, as in the fields of ``limits``."""
    return f"asynq:{{{queue}}}:h:"


def held(queue: str, lane: str) -> str:
    """Name the set of the ids that occupy the slots of a lane, or of a pool (``pool:*``); not asynq's."""
    return f"asynq:{{{queue}}}:h:{lane}"


def pool_prefix(queue: str) -> str:
    """Return the prefix of the keys of lanes that wait for their pools; the pool follows."""
    return f"asynq:{{{queue}}}:pool:"


def pool_waiting(queue: str, pool: str) -> str:
    """Name the sorted set of the lanes that wait for their pool, scored by when they began (Unix us); not asynq's."""
    return f"asynq:{{{queue}}}:pool:{pool}"


def rates(queue: str) -> str:
    """Name the hash of the rates' theoretical arrival times (GCRA, Unix us), by lane or ``pool:*``; not asynq's."""
    return f"asynq:{{{queue}}}:rates"


def bell(queue: str) -> str:
    """Name the list that has an element while a lane may have a task to start; idle servers wait on it; not asynq's."""
    return f"asynq:{{{queue}}}:bell"


def tick(queue: str, entry_name: str, due_s: int) -> str:
    """Name the string that exists once a scheduler enqueued a named entry's tick of this Unix second; not asynq's."""
    return f"asynq:{{{queue}}}:tick:{due_s}:{entry_name}"


def last_tick(queue: str, entry_name: str) -> str:
    """Name the string that holds the last tick of a named entry, as ``due:plan``; not asynq's."""
    return f"asynq:{{{queue}}}:last_tick:{entry_name}"


def semaphore(scope: str) -> str:
    """Name the sorted set of a semaphore's holders: task id, scored by its deadline in Unix seconds."""
    return f"asynq:sema:{scope}"


def _day_text(day: date) -> str:
    if isinstance(day, datetime):
        if day.utcoffset() is None:
            raise ValueError(f"day must be a date or a timezone-aware datetime, got the naive {day!r}")
        day = day.astimezone(UTC).date()
    return day.isoformat()
