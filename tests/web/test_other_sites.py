"""What a page of another site tries in Chromium, from another host and from another port of the same host."""

import http.server
import threading
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright
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
<img src="TARGET/search?q=payload:x"><link rel=stylesheet href="TARGET/static/0/app.css">
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


def test_nothing_of_another_site_reaches_a_route(url: str, db: Redis) -> None:
    app = FastqWeb(url)
    asked: list[tuple[str, str, int]] = []

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                asked.append((scope["method"], scope["path"], message["status"]))
            await send(message)

        await app(scope, receive, note)

    with Client(url) as client:
        client.enqueue("t", queue="q", task_id="x")

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(TRIES.replace("TARGET", served.url).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with (
        serving(noting) as served,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil) as server,
        sync_playwright() as playwright,
        launch(playwright) as browser,
    ):
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            before = {key: db.dump(key) for key in db.scan_iter()}
            for host in ("localhost", "127.0.0.1"):
                page = browser.new_page()
                page.set_default_timeout(PATIENCE_MS)
                page.goto(f"http://{host}:{server.server_address[1]}/")
                expect(page).not_to_have_title("tries")
                said = page.title()
                assert "stream refused" in said
                assert "/api/queues TypeError" in said  # not to be read
                page.close()
            assert {key: db.dump(key) for key in db.scan_iter()} == before
            assert {status for _, _, status in asked} == {403}, asked
            tried = {(method, path) for method, path, _ in asked}
            assert tried >= SENT, SENT - tried
            assert app.site.live.viewers == 0
            assert app.site.board._lookups == {}
        finally:
            server.shutdown()
            thread.join()
