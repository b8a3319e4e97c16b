import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from fastq.wire import keys

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "vectors.json").read_text())
DAY = date(2025, 11, 21)

GLOBAL_KEYS: dict[str, Callable[[], str]] = {
    "all_queues": keys.all_queues,
    "all_schedulers": keys.all_schedulers,
    "all_servers": keys.all_servers,
    "all_workers": keys.all_workers,
    "cancel_channel": lambda: keys.CANCEL_CHANNEL,
    "processed(default, 2025-11-22 01:00 +0900 = 21st in UTC)": lambda: keys.processed(
        "default", datetime(2025, 11, 22, 1, 0, tzinfo=timezone(timedelta(hours=9)))
    ),
    "scheduler_entries(id=h:7:sid)": lambda: keys.scheduler_entries("h:7:sid"),
    "scheduler_history(entry=e1)": lambda: keys.scheduler_history("e1"),
    "server_info(host=h,pid=7,id=sid)": lambda: keys.server_info("h", 7, "sid"),
    "workers(host=h,pid=7,id=sid)": lambda: keys.workers("h", 7, "sid"),
}
QUEUE_KEYS: dict[str, Callable[[str], str]] = {
    "active": keys.active,
    "aggregation_set(g=grp,id=set1)": lambda queue: keys.aggregation_set(queue, "grp", "set1"),
    "all_aggregation_sets": keys.aggregation_sets,
    "all_groups": keys.groups,
    "archived": keys.archived,
    "completed": keys.completed,
    "failed(2025-11-21)": lambda queue: keys.failed(queue, DAY),
    "failed_total": keys.failed_total,
    "group_key(g=grp)": lambda queue: keys.group(queue, "grp"),
    "group_key_prefix": keys.group_prefix,
    "lease": keys.lease,
    "paused": keys.paused,
    "pending": keys.pending,
    "processed(2025-11-21)": lambda queue: keys.processed(queue, DAY),
    "processed_total": keys.processed_total,
    "queue_key_prefix": keys.queue_prefix,
    "retry": keys.retry,
    "scheduled": keys.scheduled,
    "task_key(id=abc)": lambda queue: keys.task(queue, "abc"),
    "task_key_prefix": keys.task_prefix,
}


def test_global_keys_are_those_of_asynq() -> None:
    assert {name: make() for name, make in GLOBAL_KEYS.items()} == GOLDEN["keys"]["_global"]


@pytest.mark.parametrize("queue", [name for name in GOLDEN["keys"] if name != "_global"])
def test_keys_of_a_queue_are_those_of_asynq(queue: str) -> None:
    assert {name: make(queue) for name, make in QUEUE_KEYS.items()} == GOLDEN["keys"][queue]


@pytest.mark.parametrize("case", GOLDEN["unique_keys"], ids=lambda case: case["key"])
def test_unique_keys_are_those_of_asynq(case: dict[str, Any]) -> None:
    payload = None if case["payload"] is None else bytes.fromhex(case["payload"])
    assert keys.unique(case["queue"], case["type"], payload) == case["key"]


def test_a_callers_unique_key_is_hashed_as_a_payload_would_be() -> None:
    assert keys.unique_for_key("q", "t", "order-✓") == keys.unique("q", "t", "order-✓".encode())


def test_semaphore_key_is_that_of_asynq() -> None:
    assert keys.semaphore("api") == "asynq:sema:api"


def test_a_counters_day_is_the_utc_day() -> None:
    assert keys.failed("q", datetime(2025, 1, 1, 23, 59, tzinfo=UTC)) == "asynq:{q}:failed:2025-01-01"
    new_york = timezone(timedelta(hours=-5))
    assert keys.failed("q", datetime(2024, 12, 31, 19, 0, tzinfo=new_york)) == "asynq:{q}:failed:2025-01-01"


def test_a_naive_datetime_is_no_day() -> None:
    with pytest.raises(ValueError, match="timezone-aware"):
        keys.processed("q", datetime(2025, 1, 1))


def test_every_key_is_covered_here() -> None:
    makers = {value for value in vars(keys).values() if callable(value) and value.__module__ == keys.__name__}
    public = {getattr(keys, name) for name in keys.__all__ if not name.isupper()}
    assert {maker for maker in makers if not maker.__name__.startswith("_")} == public


def test_each_server_is_told_what_to_do_on_a_channel_of_its_own() -> None:
    assert keys.control_channel("sid") == "asynq:control:sid"


def test_keys_of_our_own_share_the_queue_s_hash_tag_and_are_never_each_other_s() -> None:
    assert keys.tick("q", "a:5", 7) == "asynq:{q}:tick:7:a:5"
    assert keys.last_tick("q", "a:5") == "asynq:{q}:last_tick:a:5"
    assert keys.scheduler_ticks() == "asynq:scheduler_ticks"  # of all queues
    assert (keys.moving("q"), keys.moved("q")) == ("asynq:{q}:moving", "asynq:{q}:moved")


def test_a_notice_shares_its_server_s_hash_tag() -> None:
    assert keys.server_notice(keys.server_info("h{", 1, "i")) == "asynq:fastq:{h{:1:i}"
