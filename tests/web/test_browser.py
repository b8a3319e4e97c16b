"""The pages in Chromium: nothing runs or loads that should not, other sites change nothing, everybody can read them."""

import http.server
import itertools
import os
import re
import threading
from collections.abc import Iterator
from importlib import resources
from typing import Any
from urllib.parse import unquote, urlencode

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from redis import Redis

from fastq import Client, Inspector
from fastq.web import FastqWeb
from tests.redis_servers import redis_server
from tests.waiting import wait_until
from tests.web.chromium import PATIENCE_MS, launch
from tests.web.prometheus import recorded
from tests.web.scene import EXACT, HOSTILE, HOSTILE_QUEUE, PAGES, RUNS, SHOP, add_hostile, fill
from tests.web.serving import Served, serving
from tests.web.test_pages import crawl

pytestmark = pytest.mark.browser

WIDTH = 1280
"""Of a page, where a test says nothing else."""
AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
# Axe takes some seconds a page: CI looks at a few, `make web-test` at all of them, dark and light, wide and narrow.
LOOKS = [
    ("queues", "light", 1440),
    ("queues", "light", 800),
    ("queue", "dark", 360),
    ("task", "light", 360),
    ("charts", "dark", 360),
]
if os.environ.get("ALL_PAGES"):
    LOOKS = list(itertools.product(PAGES, ("light", "dark"), (360, 800, 1440)))
TURNED = """() => [...document.querySelectorAll("body *")].filter((each) => {
  const own = [...each.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.includes("\\u202e"));
  const style = getComputedStyle(each);
  return own && style.unicodeBidi !== "isolate" && !(style.display !== "inline" && each.childNodes.length === 1);
}).map((each) => each.outerHTML)"""
"""The elements in which a name that turns the direction of writing could turn what is beside it."""
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, launch(playwright) as browser:
        yield browser


@pytest.fixture(scope="module")
def shown() -> Iterator[tuple[Served, Redis, str]]:
    """Serve the scene with a hostile queue."""
    with redis_server() as redis, redis.client() as db:
        fill(db, redis.url)
        add_hostile(redis.url)
        with (
            recorded(HOSTILE_QUEUE, *RUNS) as server,
            serving(FastqWeb(redis.url, app=SHOP, prometheus=server, auth=None)) as served,
        ):
            yield served, db, redis.url


class Watched:
    """A page of which everything is noted that should not happen."""

    def __init__(self, context: BrowserContext, served: Served) -> None:
        context.set_default_timeout(PATIENCE_MS)
        self.page: Page = context.new_page()
        self.faults: list[str] = []
        self.home = served.url
        self.page.on("console", lambda message: self._note(message.type, message.text, {"error", "warning"}))
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._note("request", request.url, set()))

    def _note(self, kind: str, text: str, bad: set[str]) -> None:
        if kind in bad and "404 (Not Found)" not in text:  # of the page that is not there
            self.faults.append(f"{kind}: {text}")
        if kind == "request" and not text.startswith((self.home, "data:")):
            self.faults.append(f"asked elsewhere: {text}")

    def open(self, path: str) -> None:
        self.page.goto(f"{self.home}{path}")
        self.check(path)

    def check(self, path: str) -> None:
        assert self.page.evaluate("window.x") is None, path
        assert self.page.evaluate(TURNED) == [], path
        assert self.faults == [], path


@pytest.mark.parametrize(("name", "scheme", "width"), LOOKS)
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(
    browser: Browser, shown: tuple[Served, Redis, str], name: str, scheme: Any, width: int
) -> None:
    with browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}) as context:
        watched = Watched(context, shown[0])
        watched.open(PAGES[name])
        watched.page.evaluate(AXE)
        found = watched.page.evaluate("rules => axe.run(document, rules)", RULES)
        assert [(fault["id"], [node["html"][:160] for node in fault["nodes"]]) for fault in found["violations"]] == []
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= width


def test_texts_that_attack_run_nothing_on_any_page(browser: Browser) -> None:
    with redis_server() as redis, serving(FastqWeb(redis.url, auth=None)) as served, browser.new_context() as context:
        add_hostile(redis.url)
        watched = Watched(context, served)
        paths = [path for path in crawl(served) if "since=" not in path]
        paths.append(f"/search?{urlencode({'q': HOSTILE[:24]})}")
        attacked = 0
        for path in paths:
            watched.open(path)
            attacked += "<script>window.x=1" in watched.page.locator("body").inner_text()
            assert watched.page.evaluate("document.documentElement.scrollWidth") <= WIDTH, path
        assert attacked >= 18, paths  # queues, seven states, six tasks, servers, schedulers, a periodic task, a search


def test_the_charts_run_nothing_and_change_by_links(browser: Browser, shown: tuple[Served, Redis, str]) -> None:
    with browser.new_context() as context:
        watched = Watched(context, shown[0])
        watched.open("/history")
        page = watched.page
        page.get_by_role("link", name="Series of Prometheus").click()
        expect(page.locator(".legend").first).to_contain_text("<script>window.x=1")
        expect(page.locator(".plot polyline")).to_have_count(9 * (1 + len(RUNS)))
        page.get_by_role("link", name="24h").click()
        page.get_by_role("link", name="Earlier").click()
        page.get_by_role("combobox").select_option("images")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("h1")).to_have_text("Prometheus: images")
        expect(page.locator(".plot polyline")).to_have_count(9)
        expect(page.get_by_role("link", name="24h")).to_have_attribute("aria-current", "page")
        watched.check("charts")


def test_another_site_changes_nothing(browser: Browser, shown: tuple[Served, Redis, str]) -> None:
    served, db, _ = shown

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = f"{served.url}/queues/images/pause"
            page = f"""<form method=post action={target}><button>go</button></form><script>
                fetch("{served.url}/api/queues/images:pause", {{method: "POST", mode: "no-cors"}}).catch(() => 0)
                  .then(() => fetch("{served.url}/api/queues/images/pending_tasks:delete_all", {{method: "DELETE"}}))
                  .catch(() => document.title = "tried");
                </script>"""
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    before = db.llen("asynq:{images}:pending")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil) as server, browser.new_context() as context:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.goto(f"http://localhost:{server.server_address[1]}/")
            expect(page).to_have_title("tried")
            page.get_by_role("button").click()
            expect(page.locator("body")).to_contain_text("this request comes from a page of another site")
        finally:
            server.shutdown()
            thread.join()
    assert db.llen("asynq:{images}:pending") == before > 1_000
    assert not db.exists("asynq:{images}:paused")


def test_tasks_are_chosen_and_deleted_without_javascript_and_by_keyboard(
    browser: Browser, shown: tuple[Served, Redis, str]
) -> None:
    served, _, url = shown
    with Client(url) as client, Inspector(url) as inspector:
        for n in range(4):
            client.enqueue("t", queue="chosen", task_id=f"c{n}", process_in=60 * (n + 1))
        with browser.new_context(java_script_enabled=False) as context:
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.goto(f"{served.url}/queues/chosen/scheduled")
            for n in (1, 2):
                page.get_by_role("checkbox", name=f"Choose c{n}").focus()
                page.keyboard.press("Space")
            page.get_by_role("button", name="Delete…", exact=True).first.focus()
            page.keyboard.press("Enter")
            expect(page.locator("h1")).to_contain_text("Delete the 2 scheduled tasks")
            page.get_by_role("button", name="Delete 2 tasks").press("Enter")
            expect(page.get_by_role("status")).to_have_text("2 tasks deleted.")
            assert [info.id for info in inspector.list_scheduled_tasks("chosen")] == ["c0", "c3"]
            page.get_by_role("button", name="Run c3").click()
            expect(page.get_by_role("status")).to_have_text("1 task made pending.")
            page.get_by_role("button", name="Pause queue").click()
            expect(page.get_by_role("status")).to_have_text("The queue is paused.")
            assert inspector.get_queue_info("chosen").paused
        inspector.delete_queue("chosen", force=True)


def test_keys_the_theme_and_copies(browser: Browser, shown: tuple[Served, Redis, str]) -> None:
    with browser.new_context(color_scheme="light") as context:
        watched = Watched(context, shown[0])
        watched.open("/queues/default/retry")
        page = watched.page
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()  # it takes the keys as long as it is open
        for key in "jjkx":
            page.keyboard.press(key)
        expect(page.get_by_role("checkbox", name="Choose de-retry-0")).to_be_checked()
        page.keyboard.press("g")
        with page.expect_navigation():  # until the scripts of the next page have run
            page.keyboard.press("h")
        expect(page.locator("h1")).to_have_text("History")
        for theme in ("light", "dark"):
            page.get_by_role("button", name="Theme").click()
            expect(page.locator("html")).to_have_attribute("data-theme", theme)
        watched.open("/queues/reports/tasks/exact?payload=raw")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")

        def is_copied() -> bool:  # the first parts to arrive bring back what stood on the button
            page.locator("button[data-copy]").first.click()
            return page.get_by_role("button", name=re.compile("Copied|Selected")).is_visible()

        wait_until(is_copied)
        assert page.evaluate("getSelection().toString()") == EXACT
        assert watched.faults == []


def test_times_and_days_are_of_the_zone_of_the_viewer(browser: Browser, shown: tuple[Served, Redis, str]) -> None:
    with browser.new_context(timezone_id="America/St_Johns", locale="en-US") as context:
        watched = Watched(context, shown[0])
        watched.open("/schedulers/21f2ca9d")
        page = watched.page
        expect(page.locator("#zone")).to_have_text("America/St_Johns")
        upcoming = page.get_by_role("list", name="Next times").locator("time").last
        expect(upcoming).to_have_text(re.compile(r"11:30 PM$"))  # 03:00 UTC
        expect(upcoming).to_have_attribute("title", re.compile(r" 11:30:00 PM GMT-3:30\n[-\d]+ 03:00:00 UTC$"))
        watched.open("/history?since=14d")
        expect(page.locator("#days")).to_contain_text("days in America/St_Johns are taken to begin at 23:30.")
        expect(page.locator(".chart g")).to_have_count(3 * 14)
        watched.open("/history?since=14d&zone=Asia/Tokyo")  # a link that somebody was sent
        expect(page.locator("#zone")).to_have_text("Asia/Tokyo")
        expect(page.locator("#days")).to_have_text("Days begin at midnight in Asia/Tokyo.")
        watched.open("/history?since=24h")
        first = page.locator(".chart g").first
        expect(first.locator("title")).to_have_text(re.compile(r"failed\n\w+ \d+, \d+:30\D"))
        other = context.new_page()
        other.goto(f"{shown[0].url}/settings")
        chosen = other.get_by_label("Time zone of all pages")
        expect(chosen).to_have_value("")
        chosen.select_option("Asia/Katmandu")
        expect(other.locator("#zone")).to_have_text("Asia/Katmandu")
        expect(page.locator("#zone")).to_have_text("Asia/Katmandu")  # the page that was open
        expect(first.locator("title")).to_have_text(re.compile(r"failed\n\w+ \d+, \d+:45\D"))
        watched.open("/history?since=14d")
        expect(page.locator("#days")).to_contain_text("Asia/Kathmandu are taken to begin at 23:45.")
        expect(page.locator("#live")).to_have_text("live")
        assert page.url.endswith("/history?since=14d")
        other.reload()
        expect(chosen).to_have_value("Asia/Katmandu")
        chosen.select_option("UTC")
        expect(page.locator("#days")).to_have_text("Days begin at midnight UTC.")
        assert watched.faults == []


def test_the_stream_keeps_the_days_of_the_viewer(browser: Browser, shown: tuple[Served, Redis, str]) -> None:
    with browser.new_context(timezone_id="Europe/Paris") as context:
        page = Watched(context, shown[0]).page
        with page.expect_request(lambda request: "/events" in request.url) as asked:
            page.goto(f"{shown[0].url}/history?since=14d")
        assert unquote(unquote(asked.value.url)).endswith("of=/history?since=14d&zone=Europe/Paris")


def test_a_zone_that_the_server_does_not_know_leaves_the_days_of_utc(
    browser: Browser, shown: tuple[Served, Redis, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.cron.zone._names", lambda: frozenset({"Asia/Tokyo"}))
    with browser.new_context(timezone_id="Asia/Kolkata") as context:
        page = Watched(context, shown[0]).page
        page.goto(f"{shown[0].url}/history?since=14d")
        expect(page.locator("#days")).to_have_text(
            re.compile(r"^Days begin at midnight UTC\. The server does not know Asia/(Kolkata|Calcutta)\.$")
        )
        expect(page.locator("#live")).to_have_text("live")


def test_without_javascript_times_are_utc_and_said_to_be(browser: Browser, shown: tuple[Served, Redis, str]) -> None:
    with browser.new_context(timezone_id="Asia/Tokyo", java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{shown[0].url}/schedulers/21f2ca9d")
        expect(page.get_by_role("list", name="Next times").locator("time").first).to_have_text(re.compile(" UTC$"))
        expect(page.locator("footer")).to_contain_text("Times in UTC")
        page.goto(f"{shown[0].url}/settings")
        expect(page.get_by_text("Times are shown in UTC.")).to_be_visible()
        expect(page.get_by_label("Time zone of all pages")).to_be_hidden()


def go_to(page: Page, text: str, key: str = "Tab") -> None:
    """Press a key until what has the focus begins with a text."""
    for _ in range(100):
        page.keyboard.press(key)
        if page.evaluate("document.activeElement.textContent.trim()").startswith(text):
            return
    raise AssertionError(f"{key} does not lead to {text}")


def test_the_keyboard_alone_opens_finds_chooses_and_confirms(
    browser: Browser, shown: tuple[Served, Redis, str]
) -> None:
    served, _, url = shown
    with Client(url) as client, Inspector(url) as inspector, browser.new_context() as context:
        for n in range(5):
            client.enqueue("t", queue="keys", task_id=f"k{n}", process_in=3_600 * (n + 1))
        page = Watched(context, served).page
        page.goto(served.url)
        go_to(page, "keys", "j")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("keys")
        go_to(page, "scheduled")
        page.keyboard.press("Enter")
        expect(page.get_by_role("checkbox", name="Choose k0")).to_be_visible()
        expect(page.locator("#live")).to_have_text("live")  # the script of the page is there, and takes keys
        for key in "jxjxjx":
            page.keyboard.press(key)
        expect(page.get_by_role("checkbox", checked=True)).to_have_count(3)
        for button in ("Run all…", "Delete…"):
            go_to(page, button, "Shift+Tab")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("Delete the 3 scheduled tasks")
        go_to(page, "Delete 3 tasks")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_have_text("3 tasks deleted.")
        assert [info.id for info in inspector.list_scheduled_tasks("keys")] == ["k3", "k4"]
        page.keyboard.press("/")
        page.keyboard.type("queue:keys state:scheduled")
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_contain_text("2 tasks found")
        inspector.delete_queue("keys", force=True)


def test_an_open_page_follows_and_rows_in_use_stay(browser: Browser, url: str) -> None:
    app = FastqWeb(url, auth=None)
    with Client(url) as client, serving(app) as served, browser.new_context() as context:
        client.enqueue("t", queue="q", task_id="c1", process_in=3_600)
        watched = Watched(context, served)
        watched.open("/queues/q/scheduled")
        page = watched.page
        page.evaluate("window.kept = 1")
        expect(page.locator("#live")).to_have_text("live")
        client.enqueue("t", queue="q", task_id="c2", process_in=3_600)
        expect(page.get_by_text("c2", exact=True)).to_be_visible()
        page.get_by_role("checkbox", name="Choose c2").check()
        client.enqueue("t", queue="q", task_id="c3", process_in=3_600)
        expect(page.locator("#live")).to_have_text("waits while a row is in use")
        expect(page.locator(".tabs")).to_contain_text("scheduled 3")
        assert page.get_by_text("c3", exact=True).count() == 0
        page.get_by_role("checkbox", name="Choose c2").uncheck()
        page.get_by_role("checkbox", name="Choose c2").blur()
        page.mouse.move(1, 1)
        expect(page.get_by_text("c3", exact=True)).to_be_visible()
        assert page.evaluate("window.kept") == 1
        page.keyboard.press("/")
        page.keyboard.type("c3")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("scheduled")
        expect(page.locator("#live")).to_have_text("live")
        wait_until(lambda: app.site.live.viewers == 1)
        hide = "Object.defineProperty(document, 'hidden', {get: () => true})"
        page.evaluate(f"{hide}, document.dispatchEvent(new Event('visibilitychange'))")
        wait_until(lambda: app.site.live.viewers == 0)
        assert watched.faults == []
