"""The dashboard as a whole: Redis that goes and comes back, what is the same in every view, and how little it asks."""

import asyncio
import os
import signal
from typing import Any

import pytest
from redis import Redis

from fastq.broker.transport.connection import READ_TIMEOUT_S
from fastq.cli.dash.dashboard import Dash
from fastq.cli.dash.desk import Options
from fastq.cli.dash.tasks import TasksView
from fastq.wire import keys
from tests.cli.commands import Fastq
from tests.cli.dash.driving import driven, on_a_loop
from tests.inspector.harness import Seeded
from tests.patience import redis_must_answer_within
from tests.ports import free_port
from tests.redis_servers import redis_server
from tests.waiting import PATIENCE_S


@on_a_loop
async def test_redis_away_is_said_and_what_was_seen_stays_until_it_is_back() -> None:
    port = free_port()
    async with driven(f"redis://127.0.0.1:{port}", refresh_s=1.0) as dash:
        await dash.sees("waiting for Redis …", "Redis does not answer since ", f"127.0.0.1:{port}")
        with redis_server(port) as server, server.client() as db:
            Seeded(db).pend("x")
            await dash.sees("▸ default", no="does not answer")
            await dash.press("enter")
            await dash.sees("▸ x")
        await dash.sees("Redis does not answer since ", "▸ x")
        await dash.press("d", "y")
        await dash.sees("0 of 1 deleted, then: ", "Redis does not answer since ", no="Delete")
        await dash.press("f2", "f3", "f4", "f1")
        await dash.sees("Redis does not answer since ", "▸ default")
        with redis_server(port) as server, server.client() as db:
            Seeded(db, "fresh").pend("y")
            await dash.sees("▸ fresh", no="does not answer")


@pytest.mark.slow
@on_a_loop
async def test_a_redis_that_hangs_does_not_hold_up_the_keys() -> None:
    with redis_must_answer_within(READ_TIMEOUT_S), redis_server() as server, server.client() as db:
        Seeded(db, "a").pend("x")
        Seeded(db, "b").pend("y")
        async with driven(server.url, refresh_s=1.0) as dash:
            await dash.sees("▸ a", "  b")
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                await dash.until(lambda text: "Redis has not answered for" in text or "does not answer" in text, "that")
                await dash.press("j")
                await dash.sees("▸ b")
                await dash.press("enter", "slash", "x", "enter", "question_mark")
                await dash.sees("Keys")
                await dash.press("escape")
                await dash.sees("does not answer since ")
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
            await dash.press("escape", "escape")
            await dash.sees("▸ b", "2 queues", no="Redis ha")
            await dash.sees("▸ b", no="does not answer")


@on_a_loop
async def test_a_password_that_is_wrong_or_changed_is_said_and_not_shown() -> None:
    with redis_server(password="right") as server, server.client() as db:
        Seeded(db).pend("x")
        async with driven(f"unix://:pass-wrong@{server.socket_path}") as dash:
            await dash.sees("Redis refuses since ", "refuses the user name or password", no="pass-wrong")
        async with driven(f"unix://:right@{server.socket_path}", refresh_s=1.0) as dash:
            await dash.sees("▸ default")
            db.config_set("requirepass", "other")
            db.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await dash.sees("Redis refuses since ", "▸ default")
            db.config_set("requirepass", "right")
            await dash.sees("▸ default", no="refuses")


@on_a_loop
async def test_a_queue_that_there_is_not_is_said(filled: Fastq) -> None:
    async with driven(filled.url, queue="nowhere") as dash:
        await dash.sees("The queue nowhere no longer exists")
        await dash.press("l", "n", "slash", "escape", "r", "D")
        await dash.sees("There are no tasks here.")
        await dash.press("escape")
        await dash.sees("3 queues")


@on_a_loop
async def test_help_lies_over_every_view(filled: Fastq) -> None:
    async with driven(filled.url) as dash:
        await dash.sees("default")
        for key in ("f1", "f2", "f3", "f4"):
            await dash.press(key, "question_mark")
            await dash.sees("Keys", "quit", "delete all")
            await dash.press("f1", "escape")
            await dash.sees("F4 Redis")
        await dash.press("f1", "enter", "question_mark", "question_mark")
        await dash.sees("act 0  pend 1")


@on_a_loop
async def test_a_read_only_dashboard_changes_nothing_and_does_not_offer_it(filled: Fastq, db: Redis) -> None:
    before = {key: db.dump(key) for key in db.scan_iter(count=1000)}
    async with driven(filled.url, read_only=True, queue="default") as dash:
        await dash.sees("read-only", "▸ a1", no="cancel")
        for key in ("c", "l", "r", "a", "d", "A", "D", "y", "l", "l", "R", "y"):
            await dash.press(key)
        await dash.sees("scheduled 1-2", "This dashboard is read-only.", no="delete")
        await dash.press("enter", "d", "y", "escape", "escape", "P", "y", "question_mark")
        await dash.sees("Keys", no="delete")
        await dash.press("escape")
        await dash.sees("This dashboard is read-only.", no="pause/resume")
    assert {key: db.dump(key) for key in db.scan_iter(count=1000)} == before


def calls(db: Any) -> dict[str, int]:
    """Return how often each command was carried out, but for those with which connections begin."""
    found = db.info("commandstats")
    counts = {name.removeprefix("cmdstat_"): facts["calls"] for name, facts in found.items()}
    aside = ("info", "config|", "client|", "hello", "select", "ping")
    return {name: count for name, count in counts.items() if not name.startswith(aside)}


@pytest.mark.parametrize("page", [1, 4], ids=["first page", "later page"])
def test_a_look_takes_as_many_commands_however_many_tasks_there_are(fastq: Fastq, db: Any, page: int) -> None:
    def count(tasks: int) -> dict[str, int]:
        db.flushall()
        queue = Seeded(db)
        queue.pend(*(f"t{n:05}" for n in range(100)))
        if tasks > 100:
            db.lpush(keys.pending("default"), *(f"more{n:06}" for n in range(tasks - 100)))
        found: dict[str, int] = {}
        on_a_loop(look)(f"of {tasks:,}", found)
        return found

    async def look(total: str, found: dict[str, int]) -> None:
        async with driven(fastq.url, refresh_s=3600.0) as dash:
            await dash.sees("default")
            await dash.press("enter")
            await dash.sees(f"1-16 {total}", "t00015")
            for before in range(1, page):
                await dash.press("n")
                await dash.sees(f"{1 + 16 * before}-{16 + 16 * before} {total}")
            await dash.until(lambda text: not dash.is_looking, "an end of looking")
            view = dash.app.screen
            assert isinstance(view, TasksView)
            db.config_resetstat()
            await dash.app.desk.look()
            await view.look()
            found.update(calls(db))

    few, many = count(100), count(20_000)
    assert few == many
    assert 0 < sum(many.values()) < 150
    assert many["lrange"] <= 3


@on_a_loop
async def test_what_does_not_change_is_not_drawn_again(filled: Fastq) -> None:
    async with driven(filled.url) as dash:
        await dash.sees("critical")
        drawn = []
        news = dash.app.screen.query_one("#places")
        original = news.render_line
        news.render_line = lambda y: (drawn.append(y), original(y))[1]  # type: ignore[func-returns-value,method-assign]

        async def is_drawn() -> bool:
            drawn.clear()
            for _ in range(5):
                dash.app._beat()
                await dash.press("j", "k")
            return bool(drawn)

        async with asyncio.timeout(PATIENCE_S):
            while await is_drawn():  # what was asked for before may come late, but it ends
                pass


def test_quitting_is_no_failure(fastq: Fastq) -> None:
    async def quit_with(key: str) -> int | None:
        app = Dash(Options(fastq.url))
        async with app.run_test() as pilot:
            await pilot.press(key)
        await app.desk.close()
        return app.return_code

    async def try_all() -> None:
        for key in ("q", "ctrl+c", "ctrl+q"):
            assert await quit_with(key) == 0

    on_a_loop(try_all)()


@on_a_loop
async def test_a_timer_that_ends_late_finds_no_screen_and_does_nothing(filled: Fastq) -> None:
    async with driven(filled.url, refresh_s=3600.0) as dash:
        await dash.sees("critical")
    assert not dash.app.screen_stack
    dash.app._beat()
