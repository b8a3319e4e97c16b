"""The same pages below any path: at the root, behind proxies, and mounted in other frameworks; in Chromium."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.test import override_settings
from fastapi import FastAPI
from playwright.sync_api import Page, expect, sync_playwright
from redis import Redis
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

import tests.contrib.django.conftest  # noqa: F401 - sets Django up
from fastq import Client
from fastq.web import FastqWeb
from tests.web.chromium import launch
from tests.web.serving import Served, serving

pytestmark = pytest.mark.browser

QUEUE, TASK = "a/b ?#%: é", ".."


def in_fastapi(web: FastqWeb) -> ASGIApp:
    app = FastAPI()
    app.mount("/tasks", web)
    return app


def beside_django(web: FastqWeb) -> ASGIApp:
    django: Any = get_asgi_application()
    return Starlette(routes=[Mount("/tasks", app=web), Mount("/", app=django)])


def behind_a_proxy_that_cuts(web: FastqWeb) -> ASGIApp:
    """Take /tasks off each path, as a proxy does, and tell it in a header."""

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith("/tasks/")
            headers = [*scope["headers"], (b"x-forwarded-prefix", b"/tasks")]
            scope = {**scope, "path": scope["path"][6:], "raw_path": scope["raw_path"][6:], "headers": headers}
        await web(scope, receive, send)

    return proxy


MOUNTS: dict[str, tuple[str, str, Callable[[FastqWeb], ASGIApp]]] = {
    "alone": ("", "", lambda web: web),
    "a root path": ("/a/b", "/a/b", lambda web: web),
    "a proxy": ("/tasks", "", behind_a_proxy_that_cuts),
    "Starlette": ("/tasks", "", lambda web: Starlette(routes=[Mount("/tasks", app=web)])),
    "FastAPI": ("/tasks", "", in_fastapi),
    "Django": ("/tasks", "", beside_django),
}
# `make web-test` tries all of them.
TRIED = MOUNTS if os.environ.get("ALL_PAGES") else ("a proxy", "Django")


@contextmanager
def mounted(url: str, name: str) -> Iterator[tuple[Served, str]]:
    """Serve the pages somewhere; gives the server and the path that they are below."""
    base, root_path, mount = MOUNTS[name]
    with serving(mount(FastqWeb(url, root_path=root_path, auth=None))) as served:
        yield served, base


def note_requests(page: Page, asked: list[str]) -> None:
    page.on("request", lambda request: asked.append(request.url))


def test_pages_open_follow_and_act_below_any_path(url: str, db: Redis) -> None:
    with sync_playwright() as playwright, launch(playwright) as browser:
        for name in TRIED:
            with Client(url) as client:
                client.enqueue("t", queue=QUEUE, task_id=TASK)
            with mounted(url, name) as (served, base), browser.new_context() as context:
                page = context.new_page()
                asked: list[str] = []
                note_requests(page, asked)
                page.goto(f"{served.url}{base}/")
                page.get_by_role("link", name=QUEUE).last.click()
                page.get_by_role("link", name="pending").click()
                expect(page.locator("#live")).to_have_text("live")
                page.get_by_role("link", name="t", exact=True).click()
                page.get_by_role("button", name="Archive").click()
                expect(page.get_by_role("status")).to_have_text("1 task archived.")
                assert [path for path in asked if not path.startswith(f"{served.url}{base}/")] == [], name
                assert served.get(f"{base}/api/v1/queues").json["queues"][0]["archived"] == 1
            db.flushdb()
    with override_settings(ALLOWED_HOSTS=["127.0.0.1"]), mounted(url, "Django") as (served, _):
        assert served.get("/nothing").status == 404  # Django's own paths are still Django's
