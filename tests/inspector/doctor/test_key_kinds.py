"""Every key that keys.py makes is known to the doctor for what it is."""

from datetime import UTC, date, datetime

import pytest

from fastq.inspector.doctor.key_kinds import KeyKind, name_key
from fastq.wire import keys

QUEUE = "a:{b"
KNOWN = {
    KeyKind.TASK: [keys.task(QUEUE, "id:1")],
    KeyKind.LOCK: [keys.unique(QUEUE, "t:x", b"p"), keys.unique(QUEUE, "t", None)],
    KeyKind.PLACE: [
        *(make(QUEUE) for make in (keys.pending, keys.active, keys.lease, keys.scheduled, keys.retry)),
        *(make(QUEUE) for make in (keys.archived, keys.completed, keys.groups, keys.aggregation_sets)),
        keys.moving(QUEUE),
        keys.group(QUEUE, "g:x"),
        keys.aggregation_set(QUEUE, "g", "s"),
    ],
    KeyKind.ASIDE: [
        keys.paused(QUEUE),
        keys.archive_rule(QUEUE),
        keys.again(QUEUE),
        keys.errors(QUEUE),
        keys.error(QUEUE, "ab" * 8),
        keys.scheduled_groups(QUEUE),
        keys.moved(QUEUE),
        keys.processed_total(QUEUE),
        keys.failed_total(QUEUE),
        keys.processed(QUEUE, date(2026, 1, 2)),
        keys.failed(QUEUE, date(2026, 1, 2)),
        keys.lost(QUEUE, date(2026, 1, 2)),
        keys.history_hours(QUEUE, date(2026, 1, 2)),
        keys.history_minutes(QUEUE, datetime(2026, 1, 2, 3, tzinfo=UTC)),
        keys.tick(QUEUE, "n:x", 7),
        keys.last_tick(QUEUE, "n"),
        *(make(QUEUE) for make in (keys.limits, keys.app_limits, keys.turns, keys.full, keys.rates, keys.bell)),
        keys.quota(QUEUE),
        keys.held(QUEUE, "a:b"),
        keys.pool_waiting(QUEUE, "a"),
    ],
    KeyKind.SHARED: [
        *(make() for make in (keys.all_queues, keys.all_servers, keys.all_workers, keys.all_schedulers)),
        keys.server_info("h", 1, "i"),
        keys.workers("h", 1, "i"),
        keys.server_notice(keys.server_info("h", 1, "i")),
        keys.scheduler_entries("h:1:i"),
        keys.scheduler_history("e"),
        keys.scheduler_ticks(),
        keys.signs(),
        keys.signers(),
        keys.takeovers(),
        keys.semaphore("s"),
    ],
    KeyKind.UNKNOWN: [
        keys.never(keys.pending("q")),
        "asynq:{q}:dead",
        "asynq:{q}:processed:today",
        "asynq:{q}:history:today",
        "asynq:{q}:error:x",
        "asynq:other",
        "asynq:{q}",
        "asynq:{q}:",
    ],
}


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, names in KNOWN.items() for key in names])
def test_a_key_is_known_by_its_name(kind: KeyKind, key: str) -> None:
    named = name_key(key)
    assert named.kind is kind
    if kind not in (KeyKind.SHARED, KeyKind.UNKNOWN):
        assert named.queue == QUEUE
    if kind is KeyKind.TASK:
        assert named.rest == "id:1"


def test_every_key_of_a_queue_is_tried() -> None:
    others = ("_prefix", "_channel")
    makers = {name for name in keys.__all__ if not (name.isupper() or name.endswith(others))} - {"never"}
    tried = [key for kind, names in KNOWN.items() if kind is not KeyKind.UNKNOWN for key in names]
    assert len(tried) == len(set(tried)) == len(makers), "unique twice, and unique_for_key makes the same"
