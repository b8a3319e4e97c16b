"""The lists of tasks: states, pages, groups, the search, and what is done from there."""

from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import Client, Inspector, Task, TaskState
from fastq.cli.dash.finder import Finder
from fastq.cli.dash.search import Found
from fastq.inspector.jobs import Place
from fastq.wire import keys
from tests.cli.commands import Fastq
from tests.cli.dash.driving import driven, on_a_loop
from tests.inspector.harness import Seeded
from tests.inspector.test_lanes import LATER_US, hold, lane
from tests.waiting import PATIENCE_S


@on_a_loop
async def test_each_state_has_its_list(filled: Fastq) -> None:
    async with driven(filled.url, queue="default") as dash:
        await dash.sees("act 2  pend 3  aggr 2  sched 2  retry 1  arch 1  compl 1")
        await dash.sees("default  active 1-2 of 2", "a1  slow  yes   running", "a2  slow  no")
        await dash.press("right")
        await dash.sees("default  pending 1-3 of 3", '▸ p1  mail:send  {"to":"ann"}', r"строка\x1b[31m\n")
        await dash.sees("32 B, not text: 80 81")
        await dash.press("l")
        await dash.sees("1 groups; Enter shows the tasks of one", "▸ mails     2")
        await dash.press("enter")
        await dash.sees("default  group mails  aggregating 1-2 of 2", "▸ g1", "g2")
        await dash.press("escape")
        await dash.sees("1 groups")
        await dash.press("l")
        await dash.sees("scheduled 1-2 of 2", "s1  report  in 1h ", "s2  report  in 2d ")
        await dash.press("l")
        await dash.sees("retry 1-1 of 1", "ValueError: ", "r1")
        await dash.press("l")
        await dash.sees("archived 1-1 of 1", "m ", "d1")
        await dash.press("l")
        await dash.sees("completed 1-1 of 1", '{"sum": 3}', "c1")
        await dash.press("l")
        await dash.sees("active 1-2 of 2")
        await dash.press("h")
        await dash.sees("completed 1-1 of 1")
        await dash.press("escape")
        await dash.sees("3 queues")


@on_a_loop
async def test_lanes_are_listed_with_the_reason_why_they_wait(url: str, db: Redis) -> None:
    queue = Seeded(db)
    rules: Any = {"acme": "2:0:1:1", "openai:*": "9:0:1:1:paused"}
    db.hset(keys.limits("default"), mapping=rules)
    lane(queue, "acme", 12, full=LATER_US)
    hold(queue, "acme", "r1", "r2")
    lane(queue, "openai:x")
    db.hset(keys.quota("default"), "pending", 5000)
    queue.group("mails", {"g1": 1.0})
    async with driven(url, queue="default") as dash:
        await dash.sees("active 1-2 of 2")
        await dash.press("l")
        await dash.sees("no pending tasks")
        await dash.press("l")
        await dash.sees("default  max 5,000 pending  3 lanes and groups; Enter shows the tasks of one")
        await dash.sees("▸ acme           12      2/2  2      full: r1")
        await dash.sees("openai:*        -      0/9  9      paused")
        await dash.sees("openai:x        1        -  -      openai:* paused")
        await dash.sees("mails           1        -  -      -")
        await dash.press("enter")
        await dash.sees("default  max 5,000 pending  group acme  aggregating 1-")


@on_a_loop
async def test_pages_are_turned_as_the_window_has_room(fastq: Fastq, db: Redis) -> None:
    Seeded(db).pend(*(f"t{n:03}" for n in range(40)))
    async with driven(fastq.url) as dash:
        await dash.sees("default")
        await dash.press("enter")
        await dash.sees("pending 1-16 of 40", "t000", "t015", no="t016")
        await dash.press("p", "n")
        await dash.sees("pending 17-32 of 40", "▸ t016", "t031")
        await dash.press("n")
        await dash.sees("pending 33-40 of 40", "t039")
        await dash.press("n")
        await dash.sees("pending 33-40 of 40", "t039")
        await dash.press("p")
        await dash.sees("pending 17-32 of 40")
        await dash.resize(80, 34)
        await dash.sees("pending 1-26 of 40", "t000", "t025")
        await dash.press("pagedown", "j")
        await dash.sees("▸ t025")
        await dash.press("g")
        await dash.sees("▸ t000")


@on_a_loop
async def test_the_cursor_stays_with_its_task(fastq: Fastq, db: Any) -> None:
    Seeded(db).pend("t0", "t1", "t2", "t3")
    async with driven(fastq.url) as dash:
        await dash.sees("default")
        await dash.press("enter")
        await dash.sees("t3")
        await dash.press("j", "j")
        await dash.sees("▸ t2")
        db.rpop(keys.pending("default"))
        await dash.press("f5")
        await dash.sees("▸ t2", "1-3 of 3", no="t0")


@on_a_loop
async def test_tasks_are_searched_by_id_type_payload_and_error(filled: Fastq) -> None:
    async with driven(filled.url, queue="default") as dash:
        await dash.sees("active 1-2")
        await dash.press("l", "slash")
        await dash.sees("an id, or part of type, payload or error")
        await dash.type("SEND")
        await dash.press("enter")
        await dash.sees("pending 2 match 'SEND' in 1-3 of 3", "p1", "p2", no="p3")
        await dash.press("slash", *["backspace"] * 4)
        await dash.type("ann")
        await dash.press("enter")
        await dash.sees("1 match 'ann' in 1-3 of 3", "p1", no="p2")
        await dash.press("slash", *["backspace"] * 3)
        await dash.type("r1")
        await dash.press("enter")
        await dash.sees("0 match 'r1' in 1-3 of 3; the task of this id is retry", "no pending tasks that match.")
        await dash.press("escape")
        await dash.sees("pending 1-3 of 3")
        await dash.press("l", "l", "l")
        await dash.sees("retry 1-1 of 1")
        await dash.press("slash")
        await dash.type("valueerror")
        await dash.press("enter")
        await dash.sees("1 match 'valueerror' in 1-1 of 1", "r1")
        await dash.press("slash", "q", "escape")
        await dash.sees("1 match 'valueerror'")


@on_a_loop
async def test_a_task_is_run_archived_and_deleted_once_that_was_confirmed(filled: Fastq, db: Redis) -> None:
    queue = Seeded(db)
    async with driven(filled.url, queue="default") as dash:
        await dash.sees("active 1-2")
        await dash.press("l")
        await dash.sees("▸ p1")
        await dash.press("d")
        await dash.sees("Delete 1 pending task of default: p1 (mail:send), for good?")
        await dash.press("escape")
        await dash.sees("Nothing was done.", "▸ p1")
        assert queue.task("p1")
        await dash.press("d", "y")
        await dash.sees("1 task deleted.", "▸ p2", "pend 2", no="p1 ")
        assert not queue.task("p1")
        await dash.press("a", "y")
        await dash.sees("1 task archived.", "▸ p3", "arch 2")
        assert queue.task("p2")["state"] == b"archived"
        await dash.press("r")
        await dash.sees("Cannot run a task in state pending")
        await dash.press("h", "h")
        await dash.sees("completed 1-1")
        await dash.press("r", "y")
        await dash.sees("1 task made pending.", "pend 2")
        assert queue.task("c1")["state"] == b"pending"


@on_a_loop
@pytest.mark.parametrize("key", ["r", "a", "d"])
async def test_a_task_that_moved_on_since_it_was_shown_is_left_as_it_is(filled: Fastq, db: Redis, key: str) -> None:
    queue = Seeded(db)
    async with driven(filled.url, queue="default", refresh_s=3600.0) as dash:
        await dash.sees("active 1-2")
        await dash.press("l", "l", "l", "l")
        await dash.sees("▸ r1")
        await dash.press(key)
        await dash.sees("1 retry task of default: r1")
        with Inspector(filled.url) as inspector:  # somebody else has another idea
            inspector.run_task("default", "r1")
            if key == "r":
                inspector.archive_task("default", "r1")
        before = queue.task("r1")
        await dash.press("y")
        state = "archived" if key == "r" else "pending"
        await dash.sees(f"1 left unchanged: r1 is {state} now, no longer retry", "There are no retry tasks.")
        assert queue.task("r1") == before


@on_a_loop
async def test_of_a_task_that_is_gone_since_it_was_shown_that_is_said(filled: Fastq, db: Redis) -> None:
    async with driven(filled.url, queue="default", refresh_s=3600.0) as dash:
        await dash.sees("active 1-2")
        await dash.press("l", "d")
        await dash.sees("Delete 1 pending task of default: p1")
        with Inspector(filled.url) as inspector:
            inspector.delete_task("default", "p1")
        await dash.press("y")
        await dash.sees("0 tasks deleted. 1 left unchanged: p1 is gone now, no longer pending")


@on_a_loop
async def test_an_active_task_is_cancelled(filled: Fastq, db: Any) -> None:
    with db.pubsub() as pubsub:
        pubsub.subscribe("asynq:cancel")
        assert pubsub.get_message(timeout=PATIENCE_S)
        async with driven(filled.url, queue="default") as dash:
            await dash.sees("▸ a1")
            await dash.press("d")
            await dash.sees("Cannot delete a task in state active; c cancels it.")
            await dash.press("c")
            await dash.sees("Cancel 1 active task of default: a1 (slow)")
            await dash.press("y")
            await dash.sees("1 task asked to stop.")
        message = pubsub.get_message(timeout=PATIENCE_S)
        assert message is not None
        assert message["data"] == b"a1"


@on_a_loop
async def test_all_tasks_of_a_state_are_acted_on(fastq: Fastq, db: Redis) -> None:
    with Client(fastq.url) as client:
        client.enqueue_many([Task("t", task_id=f"s{n}", process_in=timedelta(hours=1)) for n in range(450)])
    async with driven(fastq.url) as dash:
        await dash.sees("default")
        await dash.press("enter")
        await dash.sees("scheduled 1-16 of 450")
        await dash.press("R")
        await dash.sees("Run all 450 scheduled tasks of default, as soon as servers get to them?")
        await dash.press("y")
        await dash.sees("450 tasks made pending.", "pend 450")
        assert db.llen(keys.pending("default")) == 450
        await dash.press("h", "h")
        await dash.sees("pending 1-16 of 450")
        await dash.press("A", "y")
        await dash.sees("450 tasks archived.", "arch 450")
        await dash.press("l", "l", "l", "l")
        await dash.sees("archived 1-16 of 450")
        await dash.press("D")
        await dash.sees("Delete all 450 archived tasks of default, for good?")
        await dash.press("y")
        await dash.sees("450 tasks deleted.", "There are no archived tasks.")
        assert not list(db.scan_iter("asynq:{default}:t:*", count=1000))


@on_a_loop
async def test_while_a_search_is_on_all_means_what_it_found(filled: Fastq, db: Redis) -> None:
    queue = Seeded(db)
    async with driven(filled.url, queue="default") as dash:
        await dash.sees("active 1-2")
        await dash.press("l", "slash")
        await dash.type("mail")
        await dash.press("enter")
        await dash.sees("2 match")
        await dash.press("D")
        await dash.sees("Delete the 2 pending tasks shown of default, for good?")
        queue.db.hset(keys.task("default", "p2"), "state", "active")
        await dash.press("y")
        await dash.sees("1 task deleted. 1 left unchanged: p2 is active now, no longer pending")
        assert not queue.task("p1")
        assert queue.task("p2")
        assert queue.task("p3")


@on_a_loop
async def test_a_queue_that_goes_away_is_missed(fastq: Fastq, db: Redis) -> None:
    Seeded(db).pend("x")
    async with driven(fastq.url, refresh_s=1.0) as dash:
        await dash.sees("default")
        await dash.press("enter")
        await dash.sees("▸ x")
        db.flushall()
        await dash.sees("The queue default no longer exists.", no="does not answer")
        await dash.press("escape")
        await dash.sees("There are no queues yet.")


def test_pages_can_be_turned_faster_than_they_are_read() -> None:
    finder = Finder(Place("default", TaskState.PENDING))
    assert not finder.turn(1), "nothing is known yet"
    finder.total, finder.found = 70, Found([], 0, 16, at_end=False, size=16)
    turns = [finder.turn(by) for by in (1, 1, 1, 1, 1, -1, 1, 1)]
    assert turns == [True] * 4 + [False, True, True, False]
    assert finder._starts == [0, 16, 32, 48, 64]
