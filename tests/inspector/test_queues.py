"""What the inspectors tell of queues, against what was put there."""

import re
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import DailyStats, GroupInfo, Inspector, QueueNotFoundError, QueueStateError
from fastq.broker.operation import Flow
from fastq.broker.transport.open import open_broker
from fastq.inspector.queues import _histories
from fastq.wire import keys
from tests.broker.harness import NOW_S
from tests.inspector.harness import Ask, Seeded
from tests.waiting import PATIENCE_S


def test_queues_are_listed_by_name(ask: Ask, db: Redis) -> None:
    assert ask("queues") == []
    db.sadd(keys.all_queues(), "low", "critical", "été", "default")
    assert ask("queues") == ["critical", "default", "low", "été"]


def fill(queue: Seeded) -> dict[str, int]:
    """Put another number of tasks into each state."""
    queue.pend(*(f"p{n}" for n in range(1)))
    queue.activate(*(f"a{n}" for n in range(2)))
    for number, state in enumerate(("scheduled", "retry", "archived", "completed"), 3):
        queue.add(state, {f"{state}{n}": NOW_S for n in range(number)})
    for number in range(7):
        queue.group(f"g{number}", {f"g{number}-{n}": NOW_S for n in range(number + 1)})
    return {"pending": 1, "active": 2, "scheduled": 3, "retry": 4, "archived": 5, "completed": 6, "aggregating": 28}


def test_each_state_of_a_queue_is_counted_under_its_own_name(ask: Ask, queue: Seeded) -> None:
    sizes = fill(queue)
    info = ask("get_queue_info", "default")
    assert {name: getattr(info, name) for name in sizes} == sizes
    assert info.size == sum(sizes.values())
    assert (info.queue, info.groups, info.paused) == ("default", 7, False)


def test_several_queues_are_described_at_once(ask: Ask, queue: Seeded) -> None:
    names = [f"q{n:02}" for n in range(20)]
    for name in names:
        Seeded(queue.db, name).pend("p")
    fill(queue)
    infos = ask("get_queue_infos", ["default", "nosuch", *names])
    assert [info.queue for info in infos] == ["default", *names]
    assert [info.size for info in infos] == [49] + [1] * 20
    with pytest.raises(ValueError, match="queue"):
        ask("get_queue_infos", ["default", ""])


def test_counters_are_those_of_the_utc_day_and_the_totals(ask: Ask, queue: Seeded) -> None:
    now = datetime.now(UTC)
    for day in (now, now + timedelta(days=1)):  # in case that midnight is now
        queue.db.mset({keys.processed("default", day): 3, keys.failed("default", day): 1})
    queue.db.mset({keys.processed_total("default"): 30, keys.failed_total("default"): 10})
    info = ask("get_queue_info", "default")
    assert (info.processed, info.failed, info.processed_total, info.failed_total) == (3, 1, 30, 10)


def test_active_tasks_without_a_lease_that_lasts_are_orphaned(ask: Ask, queue: Seeded) -> None:
    queue.activate("held", "lapsed", "forgotten")
    assert ask("get_queue_info", "default").orphaned == 0
    queue.db.zadd(keys.lease("default"), {"lapsed": time.time() - 5})
    queue.db.zrem(keys.lease("default"), "forgotten")
    assert ask("get_queue_info", "default").orphaned == 2


def test_scheduled_tasks_and_retries_that_are_due_are_overdue(ask: Ask, queue: Seeded) -> None:
    queue.add("scheduled", {"later": NOW_S + 1e6})
    assert ask("get_queue_info", "default").overdue == timedelta(0)
    queue.add("retry", {"due": time.time() - 90})
    assert timedelta(seconds=89) < ask("get_queue_info", "default").overdue < timedelta(minutes=5)
    queue.add("scheduled", {"broken": float("-inf")})
    assert ask("get_queue_info", "default").overdue > timedelta(days=36_500)


def test_latency_is_how_long_the_oldest_pending_task_waits(ask: Ask, queue: Seeded) -> None:
    assert ask("get_queue_info", "default").latency == timedelta(0)
    queue.pend("old", "new")
    queue.db.hset(keys.task("default", "old"), "pending_since", time.time_ns() - 90 * 10**9)
    before = datetime.now(UTC)
    info = ask("get_queue_info", "default")
    assert timedelta(seconds=89) < info.latency < timedelta(minutes=5)
    assert before <= info.timestamp <= datetime.now(UTC)


def test_latency_is_zero_where_go_did_not_note_since_when_a_task_waits(ask: Ask, queue: Seeded) -> None:
    queue.pend("ran-again")
    queue.db.hdel(keys.task("default", "ran-again"), "pending_since")
    assert ask("get_queue_info", "default").latency == timedelta(0)


def test_memory_is_estimated_from_a_few_tasks_of_each_state(ask: Ask, queue: Seeded) -> None:
    assert ask("get_queue_info", "default").memory_usage == 0
    queue.add("archived", {f"a{n}": n for n in range(100)}, payload=b"x" * 1000)
    archived = ask("get_queue_info", "default").memory_usage
    assert 100_000 < archived < 300_000
    queue.group("g", {f"g{n}": n for n in range(100)}, payload=b"x" * 1000)
    assert 1.5 < ask("get_queue_info", "default").memory_usage / archived < 2.5


def test_a_user_who_may_not_ask_for_memory_still_sees_the_queue(ask: Ask, queue: Seeded) -> None:
    queue.pend("p")
    queue.db.execute_command("ACL", "SETUSER", "default", "-memory")
    try:
        info = ask("get_queue_info", "default")
    finally:
        queue.db.execute_command("ACL", "SETUSER", "default", "+@all")
    assert (info.pending, info.memory_usage) == (1, None)


def test_more_groups_than_one_call_looks_at_are_all_listed(ask: Ask, queue: Seeded) -> None:
    names = [f"g{number:04}" for number in range(1201)]
    for name in names:
        queue.db.zadd(keys.group("default", name), {"id": 1})
    queue.db.sadd(keys.groups("default"), *names)
    assert ask("groups", "default") == [GroupInfo(name, 1) for name in names]
    assert ask("get_queue_info", "default").aggregating == 1201


def test_groups_are_listed_page_by_page_and_estimated(ask: Ask, queue: Seeded) -> None:
    names = [f"g{number:04}" for number in range(1201)]
    for number, name in enumerate(names):
        queue.db.zadd(keys.group("default", name), {"id": 1, **({"other": 2} if number % 2 else {})})
    queue.db.sadd(keys.groups("default"), *names)
    found, cursor, pages = [], "", 0
    while pages == 0 or cursor:
        page, cursor = ask("list_groups", "default", cursor=cursor, page_size=300)
        assert 300 <= len(page) < 600 or not cursor
        found += page
        pages += 1
    assert sorted(found, key=lambda each: each.group) == ask("groups", "default")
    assert 2 <= pages <= 5
    assert 1_400 < ask("get_queue_info", "default", estimate=True).aggregating < 2_200
    assert ask("get_queue_info", "default").aggregating == 1_801
    queue.db.srem(keys.groups("default"), *names[1_000:])
    assert ask("get_queue_info", "default", estimate=True).aggregating == 1_500  # so few are counted
    for wrong in ("x", "-1", "9" * 20, "1 "):
        with pytest.raises(ValueError, match=re.escape(repr(wrong))):
            ask("list_groups", "default", cursor=wrong)
    with pytest.raises(ValueError, match="page_size"):
        ask("list_groups", "default", page_size=0)
    assert ask("list_groups", "nosuch") == ([], "")


def test_no_call_looks_at_more_than_some_hundred_groups(queue: Seeded, url: str) -> None:
    """More would hold up Redis for milliseconds when its machine has much to do."""
    queue.group("g", {"id": NOW_S})
    queue.db.sadd(keys.groups("default"), *(f"g{n}" for n in range(5000)))
    queue.db.config_resetstat()
    with Inspector(url) as inspector:
        assert inspector.get_queue_info("default").groups == 5001
    calls = queue.db.info("commandstats")
    assert calls["cmdstat_zcard"]["calls"] / calls["cmdstat_sscan"]["calls"] < 150


def test_groups_of_a_queue_that_is_not_there_are_none(ask: Ask, db: Redis) -> None:
    assert ask("groups", "nosuch") == []


def test_history_has_the_last_days_today_first(ask: Ask, queue: Seeded) -> None:
    today = datetime.now(UTC).date()
    for ago in range(-1, 3):
        day = today - timedelta(days=ago)
        queue.db.mset({keys.processed("default", day): 10 + ago, keys.failed("default", day): 5 + ago})
    found = ask("history", "default", 5)
    first = found[0].date
    assert today <= first <= today + timedelta(days=1)
    assert [each.date for each in found] == [first - timedelta(days=ago) for ago in range(5)]
    ago = (today - first).days
    assert found[0] == DailyStats("default", 10 + ago, 5 + ago, first)
    assert found[4] == DailyStats("default", 0, 0, first - timedelta(days=4))


def test_the_histories_of_many_queues_take_few_round_trips(url: str, db: Redis) -> None:
    names = [f"q{n:03}" for n in range(100)]
    db.sadd(keys.all_queues(), *names)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    for name in names[::33]:
        db.mset({keys.processed(name, yesterday): 9, keys.failed(name, yesterday): 2})
    trips: list[object] = []
    with Inspector(url) as inspector, closing(open_broker(url)) as broker:
        found = broker.drive(_noting(_histories([*names, "gone"], 90, time.time_ns()), trips))
        assert len(trips) == 4
        assert list(found) == names
        assert sum(day.failed for days in found.values() for day in days) == 2 * 4
        both = inspector.histories([names[33], "gone"], 90)
        assert list(both) == [names[33]]
        assert sum(day.processed for day in both[names[33]]) == 9


def _noting(flow: Flow[Any], trips: list[object]) -> Flow[Any]:
    """Note each round trip of a flow."""
    result = None
    while True:
        try:
            step = flow.send(result)
        except StopIteration as end:
            return end.value
        trips.append(step)
        result = yield step


def test_a_long_history_is_read_in_several_calls(ask: Ask, queue: Seeded) -> None:
    day = datetime.now(UTC).date() - timedelta(days=3000)
    queue.db.set(keys.processed("default", day), 7)
    counts = {each.date: each.processed for each in ask("history", "default", 3650)}
    assert (len(counts), counts[day], sum(counts.values())) == (3650, 7, 7)


@pytest.mark.parametrize(
    ("days", "kind", "text"),
    [(0, ValueError, "days must be from 1 to 3650: 0"), (3651, ValueError, "3651"), ("7", TypeError, "'7'")],
)
def test_a_history_of_no_days_is_refused(ask: Ask, queue: Seeded, days: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        ask("history", "default", days)


def test_a_queue_is_paused_once_and_resumed_once(ask: Ask, queue: Seeded) -> None:
    before = int(time.time())
    ask("pause_queue", "default")
    assert before <= int(queue.db.get(keys.paused("default"))) <= time.time()
    assert ask("get_queue_info", "default").paused
    with pytest.raises(QueueStateError, match=r"queue is already paused \(queue='default'\)"):
        ask("pause_queue", "default")
    ask("unpause_queue", "default")
    assert not queue.db.exists(keys.paused("default"))
    with pytest.raises(QueueStateError, match=r"queue is not paused \(queue='default'\)"):
        ask("unpause_queue", "default")


@pytest.mark.parametrize(
    "call",
    [("get_queue_info", "nosuch"), ("history", "nosuch", 1)],
    ids=lambda call: call[0],
)
def test_a_queue_that_is_not_listed_is_not_found(ask: Ask, db: Redis, call: tuple[Any, ...]) -> None:
    with pytest.raises(QueueNotFoundError, match=r"queue not found \(queue='nosuch'\)"):
        ask(*call)


@pytest.mark.parametrize("method", ["get_queue_info", "groups", "pause_queue", "unpause_queue", "cluster_nodes"])
@pytest.mark.parametrize(("name", "kind"), [(" ", ValueError), ("", ValueError), (b"q", TypeError), (None, TypeError)])
def test_a_blank_queue_is_refused(ask: Ask, db: Redis, method: str, name: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="queue must"):
        ask(method, name)
    assert db.dbsize() == 0


def test_a_full_redis_lets_a_queue_be_paused_and_deleted(ask: Ask, queue: Seeded) -> None:
    for name in "ab":
        queue.put(name, "retry")
    queue.db.config_set("maxmemory", 1)
    try:
        ask("pause_queue", "default")
        with pytest.raises(QueueStateError):
            ask("pause_queue", "default")
        ask("unpause_queue", "default")
        ask("delete_queue", "default", force=True)
    finally:
        queue.db.config_set("maxmemory", 0)
    assert queue.places() == {}


def test_one_inspector_serves_many_threads(url: str, queue: Seeded) -> None:
    from_threads: list[int] = []
    queue.pend("a", "b", "c")
    with_all = threading.Barrier(8)
    with Inspector(url) as inspector:

        def look() -> None:
            with_all.wait(PATIENCE_S)
            from_threads.extend(inspector.get_queue_info("default").pending for _ in range(20))

        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert from_threads == [3] * 160
