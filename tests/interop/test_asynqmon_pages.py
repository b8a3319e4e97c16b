"""asynqmon's own pages, as published, work in Chromium with fastq web behind them."""

import asyncio
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fastq import Client, Inspector, TaskState
from fastq.web import FastqWeb
from tests.cli.dash.scene import fill_scene
from tests.interop.build import build
from tests.interop.monitor import LIMIT_S, Asynqmon
from tests.redis_servers import redis_server
from tests.waiting import wait_until
from tests.web.chromium import launch
from tests.web.serving import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.browser]

LIMIT_MS = LIMIT_S * 1_000
BUTTONS = ("Delete", "Archive", "Run")
PAGES = {
    "/": "images",
    "/queues/q?status=scheduled": "Process In",
    "/queues/q/tasks/x0": "Next Process Time",
    "/servers": "worker-1:4211",
    "/schedulers": "0 3 * * *",
    "/redis": "Memory Fragmentation Ratio",
}


@contextmanager
def pages_of(monitor: Asynqmon, url: str) -> Iterator[Served]:
    """Serve asynqmon's files, and fastq's API in place of its own."""
    web = FastqWeb(url, auth=None)

    def file(path: str) -> tuple[bytes, str]:
        with urllib.request.urlopen(f"http://{monitor.address}{path}", timeout=LIMIT_S) as answer:
            return answer.read(), answer.headers["content-type"]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/api/"):
            await web(scope, receive, send)
        else:
            body, kind = await asyncio.to_thread(file, scope["path"])
            await Response(body, media_type=kind)(scope, receive, send)

    with serving(app) as served:
        yield served


def act(page: Page, task_id: str, verb: str) -> None:
    """Press a button in the row of a task; they are there while the pointer is."""
    row = page.get_by_role("row").filter(has_text=task_id)
    cell = row.get_by_role("cell").last
    cell.hover()
    buttons = cell.get_by_role("button")
    expect(buttons).to_have_count(len(BUTTONS), timeout=LIMIT_MS)
    buttons.nth(BUTTONS.index(verb)).click()
    page.mouse.move(1, 1)  # else the next row comes under the pointer without its having entered it
    expect(row).to_have_count(0, timeout=LIMIT_MS)


def test_its_pages_show_and_act_through_fastq() -> None:
    faults: list[str] = []
    with (
        redis_server() as redis,
        redis.client() as db,
        Client(redis.url) as client,
        Inspector(redis.url) as inspector,
        Asynqmon(build("asynqmon"), Path(redis.socket_path)) as monitor,
        pages_of(monitor, redis.url) as served,
        sync_playwright() as playwright,
        launch(playwright) as browser,
        browser.new_context(viewport={"width": 1400, "height": 900}) as context,
    ):
        fill_scene(db, redis.url)
        for n in range(4):
            client.enqueue("t", {"n": n}, queue="q", task_id=f"x{n}", process_in=3_600)
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        page.route(lambda address: not address.startswith(served.url), lambda route: route.abort())  # its fonts
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("response", lambda reply: faults.append(reply.url) if reply.status >= 400 else None)
        for path, text in PAGES.items():
            page.goto(f"{served.url}{path}")
            expect(page.get_by_text(text).first).to_be_visible(timeout=LIMIT_MS)

        def left(state: TaskState) -> list[str]:
            return sorted(info.id for info in inspector.list_tasks("q", state))

        page.goto(f"{served.url}/queues/q?status=scheduled")
        act(page, "x0", "Run")
        wait_until(lambda: left(TaskState.PENDING) == ["x0"])
        act(page, "x1", "Delete")
        wait_until(lambda: left(TaskState.SCHEDULED) == ["x2", "x3"])
        act(page, "x2", "Archive")
        wait_until(lambda: left(TaskState.ARCHIVED) == ["x2"])
    assert faults == []
