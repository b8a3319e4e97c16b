"""What a page of another site tries in Chromium: from another host, from another port of the same host, and by name.

To a name, browsers send no ``Sec-Fetch-Site`` over plain HTTP; to localhost and addresses of loopback they do.
"""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from redis import Redis
from starlette.types import Message, Receive, Scope, Send

from fastq import Client
from fastq.web import FastqWeb
from tests.web.chromium import PATIENCE_MS, launch
from tests.web.serving import serving

pytestmark = pytest.mark.browser

TRIES = """<!doctype html><title>tries</title>
<iframe src="TARGET/queues/q/pending" name=framed></iframe>
<iframe sandbox="allow-scripts allow-forms" srcdoc='<form method=post action="TARGET/queues/q/pause"></form>
  <script>document.forms[0].submit()</script>'></iframe>
<form method=post target=framed enctype="text/plain" action="TARGET/api/v1/queues/q/pending/delete">
  <input name='{"ids": ["x"], "x": "' value='"}'></form>
<iframe src="TARGET/search?q=framed" referrerpolicy="no-referrer"></iframe><iframe src="TARGET/doctor"></iframe>
<img src="TARGET/search?q=payload:x"><img src="TARGET/search?q=hidden" referrerpolicy="no-referrer">
<link rel=stylesheet href="TARGET/static/0/app.css">
<script src="TARGET/api/queues"></script>
<script>
const tried = [];
const note = (what) => (outcome) => tried.push(`${what} ${outcome?.type ?? outcome?.name}`);
const stream = new EventSource("TARGET/events?of=/");
const streamed = new Promise((done) => {
  stream.onopen = () => done({name: "opened"});
  stream.onerror = () => done({name: "refused"});
});
const send = (method, path, more) => fetch("TARGET" + path, {method, ...more}).then(note(path), note(path));
Promise.all([
  streamed.then(note("stream")),
  send("POST", "/api/queues/q:pause", {mode: "no-cors", body: "x"}),
  send("POST", "/api/v1/queues/q/pause", {mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: "{}"}),
  send("POST", "/queues/q/delete", {mode: "no-cors", body: new URLSearchParams({sure: "yes", force: "yes"})}),
  send("POST", "/api/v1/queues/q/pending/delete", {headers: {"Content-Type": "application/json"}, body: "{}"}),
  send("DELETE", "/api/queues/q/pending_tasks:delete_all", {}),
  send("PUT", "/api/queues/q", {}),
  send("GET", "/api/queues", {}),
  send("GET", "/search?q=payload:y", {mode: "no-cors", credentials: "include"}),
  send("GET", "/search?q=z", {mode: "no-cors", referrerPolicy: "no-referrer", headers: {Accept: "text/html"}}),
]).then(() => { document.forms[0].submit(); setTimeout(() => { document.title = tried.join(", "); }, 500); });
</script>"""


SENT = {
    ("GET", "/queues/q/pending"),
    ("POST", "/queues/q/pause"),
    ("POST", "/api/v1/queues/q/pending/delete"),
    ("GET", "/search"),
    ("GET", "/api/queues"),
    ("GET", "/events"),
    ("POST", "/api/queues/q:pause"),
    ("POST", "/api/v1/queues/q/pause"),
    ("POST", "/queues/q/delete"),
    ("OPTIONS", "/api/queues/q/pending_tasks:delete_all"),
}
"""What at least reaches the server; browsers ask before a DELETE, and are refused."""


NAMES = "--host-resolver-rules=MAP tasks.example.com 127.0.0.1,MAP evil.example 127.0.0.1"


@dataclass
class Watched:
    """An app that notes what is asked of it, and the status of each reply."""

    app: FastqWeb
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.asked.append((scope["method"], scope["path"], message["status"]))
            await send(message)

        await self.app(scope, receive, note)

    @property
    def has_begun_something(self) -> bool:
        return self.app.site.live.viewers > 0 or self.app.site.board._lookups != {}


@contextmanager
def evil_site(target: str) -> Iterator[int]:
    """Serve the page that tries; gives the port."""

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(TRIES.replace("TARGET", target).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, launch(playwright, NAMES) as browser:
        yield browser


@pytest.mark.parametrize("is_by_name", [False, True])
def test_nothing_of_another_site_reaches_a_route(browser: Browser, url: str, db: Redis, is_by_name: bool) -> None:
    watched = Watched(FastqWeb(url, allowed_hosts=["tasks.example.com"], auth=None))
    with Client(url) as client:
        client.enqueue("t", queue="q", task_id="x")
    with serving(watched) as served:
        target = f"http://tasks.example.com:{served.port}" if is_by_name else served.url
        before = {key: db.dump(key) for key in db.scan_iter()}
        with evil_site(target) as port:
            for host in ("evil.example", "tasks.example.com") if is_by_name else ("localhost", "127.0.0.1"):
                page = browser.new_page()
                page.set_default_timeout(PATIENCE_MS)
                page.goto(f"http://{host}:{port}/")
                expect(page).not_to_have_title("tries")
                said = page.title()
                assert "stream refused" in said
                assert "/api/queues TypeError" in said  # not to be read
                page.close()
        assert {key: db.dump(key) for key in db.scan_iter()} == before
        # Over plain HTTP, what a frame asks for looks like a bookmark; it is a page that begins nothing.
        framed = {("GET", "/queues/q/pending"), ("GET", "/search"), ("GET", "/doctor")} if is_by_name else set()
        assert {(method, path) for method, path, status in watched.asked if status != 403} == framed
        assert ("GET", "/search", 403) in watched.asked
        tried = {(method, path) for method, path, _ in watched.asked}
        assert tried >= SENT, SENT - tried
        assert not watched.has_begun_something


def test_own_pages_work_by_name_over_plain_http(browser: Browser, url: str, db: Redis) -> None:
    watched = Watched(FastqWeb(url, allowed_hosts=["tasks.example.com"], auth=None))
    with Client(url) as client:
        client.enqueue("t", queue="q", task_id="x")
    with serving(watched) as served, browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"http://tasks.example.com:{served.port}/search?q=id:x")  # as from a bookmark
        expect(page.get_by_text("Nothing has begun yet")).to_be_visible()
        assert not watched.has_begun_something
        page.get_by_role("link", name="Go on").click()
        expect(page.get_by_text("1 task found")).to_be_visible()
        page.get_by_role("main").get_by_role("searchbox").fill("id:nothing")
        page.get_by_role("main").get_by_role("button", name="Search").click()
        expect(page.get_by_text("No task matches")).to_be_visible()
        page.goto(f"http://tasks.example.com:{served.port}/queues/q/pending")
        with page.expect_response(lambda response: "/events" in response.url) as told:
            page.reload()
        assert told.value.status == 200
