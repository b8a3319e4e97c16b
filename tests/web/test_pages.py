"""What the pages show and what their forms do; over real HTTP, on a real Redis, without JavaScript."""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest
from jinja2 import PackageLoader
from markupsafe import Markup
from redis import Redis
from starlette.applications import Starlette
from starlette.routing import Mount

from fastq import Client, Inspector, TaskState
from fastq.web import FastqWeb, render
from fastq.web.payloads import preview
from fastq.web.payloads import shown as layout
from fastq.web.serve import shortened
from fastq.wire import keys
from tests.broker.harness import message
from tests.cli.dash.scene import publish_server
from tests.redis_servers import redis_server
from tests.waiting import wait_until
from tests.web.scene import EXACT, HOSTILE_QUEUE, PAGES, SHOP, add_hostile, fill
from tests.web.serving import Answer, Served, serving

TAG = re.compile(r"<[^>]*>")


def text_of(answer: Answer) -> str:
    """Return what a reader sees."""
    return " ".join(unescape(TAG.sub(" ", re.sub("</?bdi>", "", answer.text))).split())


@pytest.fixture(scope="module")
def shown() -> Iterator[Served]:
    """Serve the scene; it is only looked at."""
    with redis_server() as redis, redis.client() as db:
        fill(db, redis.url)
        with serving(FastqWeb(redis.url, app=SHOP, auth=None)) as served:
            yield served


@pytest.fixture
def acting(url: str) -> Iterator[Served]:
    """Serve the emptied Redis."""
    with serving(FastqWeb(url, auth=None)) as served:
        yield served


def without_minutes(text: str) -> str:
    """Leave out what passes while the scene is looked at: 5h for 5h 12m."""
    return re.sub(r"\b(\d+h) \d+m\b", r"\1", text)


def send(served: Served, path: str, **fields: str | list[str]) -> Answer:
    body = urlencode(fields, doseq=True).encode()
    return served.ask(
        "POST", path, body, Content_Type="application/x-www-form-urlencoded", Sec_Fetch_Site="same-origin"
    )


def test_what_is_wrong_comes_first(shown: Served) -> None:
    text = text_of(shown.get("/"))
    wrong = text.index("142 tasks wait, and no running server serves this queue. Start one: fastq worker APP --queues")
    assert wrong < text.index("paused, while 7 tasks wait") < text.index("Running 12 of 16") < text.index("images")


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/queues/default/retry", "TimeoutError: no answer of images.example in 10 s"),
        ("/queues/default/retry", "1\u20133 of 3"),
        ("/queues/images/pending?size=10&page=2", "11\u201320 of 1,830"),
        ("/queues/images/pending?page=9999", "There are no more pending tasks"),
        ("/queues/images/active", "worker-2:4211"),
        ("/queues/low/aggregating?group=weekly", "digest:mail"),
        ("/queues/critical/aggregating", "No aggregating tasks"),
        ("/queues/default/completed", '{"sent": true, "id": 12}'),
        ("/queues/reports/tasks/binary", "0123456789:;<=>?"),
        ("/queues/default/tasks/de-retry-1", "Retries 2 of 25"),
        ("/queues/images/tasks/im-run-1", "Server worker-2:4211"),
        ("/queues/images/tasks/im-run-1", "Process 4221 68.0 MB Started"),
        ("/queues/images/tasks/im-run-1", "Lease of a fastq server, ends in"),
        ("/queues/images/tasks/im-run-1", "Progress 42 of 120 · frames"),
        ("/queues/images/active", "42 of 120 · frames"),
        ("/servers", "worker-1:4211 started 5h 12m ago Quiet\u2026 Stop\u2026 5 of 8 busy"),
        ("/servers", "6 worker processes, 5 busy, 1 idle"),
        ("/servers", "4225 idle \u2013 5h 11m ago 96.0 MB"),
        ("/schedulers", "every 30s @every 30s"),
        ("/schedulers", "low every day at 03:00 UTC 0 3 * * *"),
        ("/schedulers/21f2ca9d", "Next times"),
        ("/schedulers/21f50a8d", "ping-000"),
        ("/history", "By type"),
        ("/history?since=14d", "Types are kept for 8 hours."),
        ("/history?queue=critical", "No runs in this time"),
        ("/queues/images/active", "The last hour"),
        ("/redis", "Eviction noeviction"),
        ("/jobs", "No jobs yet"),
    ],
)
def test_pages_show(shown: Served, path: str, seen: str) -> None:
    answer = shown.get(path)
    assert answer.status == 200
    assert without_minutes(seen) in without_minutes(text_of(answer))


def test_a_formatter_that_repeats_the_payload_says_nothing(url: str) -> None:
    with Client(url) as client:
        client.enqueue("t", {"to": "ann", "text": "x" * 50}, queue="q", task_id="a")
    formatters = (shortened(20), shortened(200), lambda name, data: f"{name}: {len(data)}")
    for formatter, count in zip(formatters, (0, 0, 1), strict=True):
        with serving(FastqWeb(url, auth=None, payload_formatter=formatter)) as served:
            page = served.get("/queues/q/tasks/a").text
        assert page.count('class="formatted"') == count


def test_a_task_names_the_holder_of_its_unique_lock(acting: Served, url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="q", task_id="a/1", unique=3600)
    assert "Unique lock this task has it, ends in" in text_of(acting.get("/queues/q/tasks/a~2F1"))
    lock = keys.unique("q", "t", None)
    db.set(lock, "b/2")
    assert '<a href="/queues/q/tasks/b~2F2">b/2</a> has it, without an end' in acting.get("/queues/q/tasks/a~2F1").text
    db.delete(lock)
    assert "Unique lock nobody has it" in text_of(acting.get("/queues/q/tasks/a~2F1"))


def test_a_task_says_what_is_to_follow_it_by_its_key(acting: Served, url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="q", task_id="a")
    assert "Runs again" not in text_of(acting.get("/queues/q/tasks/a"))
    db.hset(keys.again("q"), "a", b"4000000000:4000000009:" + message("a", payload=b"four"))
    page = text_of(acting.get("/queues/q/tasks/a"))
    assert "Runs again once this run has ended, with a payload of 4 bytes Not before in" in page
    assert "At the latest in" in page


def test_a_task_has_links_to_its_trace_and_logs(url: str, db: Redis) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with Client(url) as client:
        client.enqueue("a&b", queue="q", task_id="x/y", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
        client.enqueue("t", queue="q", task_id="untraced", headers={"traceparent": "00-javascript-1-01"})
    links = {"Trace": "https://traces.example/{trace_id}", "Logs": "http://logs.example/?q={id}+{type}+{queue}"}
    with serving(FastqWeb(url, links=links, auth=None)) as served:
        text = served.get("/queues/q/tasks/x~2Fy").text
        assert f'<a href="https://traces.example/{trace}" rel="noreferrer">Trace</a>' in text
        assert '<a href="http://logs.example/?q=x%2Fy+a%26b+q" rel="noreferrer">Logs</a>' in text
        text = served.get("/queues/q/tasks/untraced").text
        assert "traces.example" not in text
        assert "http://logs.example/?q=untraced+t+q" in text


def test_payloads_are_shown_digit_for_digit_and_had_byte_for_byte(shown: Served) -> None:
    text = text_of(shown.get("/queues/reports/tasks/exact"))
    for part in ('"id" : 9007199254740993', '"price" : 1.10', '"lines" : []', "two\\nlines", "Jürgen Åström"):
        assert part in text
    download = shown.get("/queues/reports/tasks/exact/payload")
    assert download.body == EXACT.encode()
    assert download.headers["content-disposition"] == 'attachment; filename="payload.bin"'
    assert download.headers["content-type"] == "application/octet-stream"


def test_long_payloads_are_cut_on_the_page_and_had_whole(acting: Served, url: str) -> None:
    twice = b'{"k": 1, "k": 2, "x": 1.10, "id": 9007199254740993, "more": "'
    payload = twice + b"x" * 5_000_000 + b'"}'
    with Client(url) as client:
        client.enqueue("t", payload, queue="q", task_id="long")
        client.enqueue("t", twice + b'"}', queue="q", task_id="twice")
    assert '"k" : 1 , "k" : 2 , "x" : 1.10 , "id" : 9007199254740993 ,' in text_of(acting.get("/queues/q/tasks/twice"))
    for path in ("/queues/q/tasks/long", "/queues/q/pending", "/queues/q/tasks/long?payload=hex", "/search?q=id:long"):
        assert len(acting.get(path).body) < 500_000, path
    assert "the download has all of it" in text_of(acting.get("/queues/q/tasks/long"))
    assert acting.get("/queues/q/tasks/long/payload").body == payload


def test_every_link_leads_somewhere(shown: Served) -> None:
    links = {link for path in PAGES.values() for link in re.findall(r'href="([^"#]*)', shown.get(path).text)}
    assert len(links) > 100
    seen = {re.sub(r"\d+|-\w+$", "0", link): unescape(link) for link in links if link and not link.startswith("?")}
    for link in seen.values():
        assert shown.get(link).status in (200, 303, 404 if "find?id=ping" in link else 200), link


def test_assets_are_kept_by_browsers_and_shown_below_any_root(shown: Served, url: str) -> None:
    (sheet,) = re.findall(r'<link rel="stylesheet" href="([^"]*)"', shown.get("/").text)
    answer = shown.get(sheet, Accept_Encoding="gzip")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.body) < 12_000
    assert shown.get("/static/0/nothing.css").status == 404
    with serving(FastqWeb(url, root_path="/a/b", auth=None)) as served:
        for path, prefix in (("/", "/a/b"), ("/a/b/servers", "/a/b")):
            assert f'href="{prefix}/static/' in served.get(path).text
        assert 'href="/c/a/b/static/' in served.get("/", X_Forwarded_Prefix="/c").text
        assert "evil" not in served.get("/", X_Forwarded_Prefix="//evil.example").text


def test_a_task_or_a_queue_is_found_by_its_name(shown: Served) -> None:
    found = shown.get("/find?id=binary")
    assert (found.status, found.headers["location"]) == (303, "/queues/reports/tasks/binary")
    assert shown.get("/find?id=images").headers["location"] == "/queues/images"
    assert shown.get("/find?id=nothing+else").headers["location"] == "/search?q=nothing+else"
    assert shown.get("/find?id=").headers["location"] == "/search"


def test_names_that_attack_are_only_text(acting: Served, url: str) -> None:
    add_hostile(url)
    with Inspector(url) as inspector:
        assert inspector.queues() == [HOSTILE_QUEUE]
    for path in crawl(acting):
        answer = acting.get(path)
        assert answer.status == 200, path
        assert "<script>" not in answer.text
        assert "<img src=x" not in answer.text


def crawl(served: Served) -> list[str]:
    """Return all pages that are reached by links, without downloads."""
    seen, left = set(), {"/"}
    while left:
        path = left.pop()
        seen.add(path)
        if path.startswith("/search?"):
            continue  # each of its links narrows it further
        links = {unescape(link) for link in re.findall(r'<a [^>]*?href="([^"#]*)', served.get(path).text)}
        left |= {link for link in links if link.startswith("/") and "/static/" not in link} - seen
        left = {link for link in left if not link.endswith(("/payload", "/result")) and not link.startswith("/find?")}
    assert len(seen) > 8
    return sorted(seen - {path for path in seen if path.count("/") == 2 and path.startswith("/queues")})


def states(inspector: Inspector) -> dict[str, int]:
    info = inspector.get_queue_info("q")
    return {state.value: getattr(info, state.value) for state in TaskState if getattr(info, state.value)}


def test_forms_act_on_tasks_and_ask_before_they_destroy(acting: Served, url: str) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        for n in range(8):
            client.enqueue("t", n, queue="q", task_id=f"x/{n}", process_in=60)
        assert send(acting, "/queues/q/scheduled/run").status == 400
        done = send(acting, "/queues/q/scheduled/run", id=["x/0", "x/1"])
        assert (done.status, done.headers["location"]) == (303, "/queues/q/scheduled?did=run&done=2&failed=0")
        assert "2 tasks made pending." in text_of(acting.get(done.headers["location"]))
        assert states(inspector) == {"pending": 2, "scheduled": 6}
        one = send(acting, "/queues/q/scheduled/archive", id=["x/3"], only="x/2", to="task")
        assert one.headers["location"] == "/queues/q/tasks/x~2F2?did=archive&done=1&failed=0"
        assert states(inspector) == {"pending": 2, "scheduled": 5, "archived": 1}
        gone = send(acting, "/queues/q/scheduled/run", id=["x/0", "none"])
        assert (gone.status, "no longer scheduled" in text_of(gone)) == (409, True)
        question = send(acting, "/queues/q/scheduled/delete", id=["x/3", "x/4"])
        assert (question.status, "Delete the 2 scheduled tasks" in text_of(question)) == (200, True)
        assert states(inspector) == {"pending": 2, "scheduled": 5, "archived": 1}
        send(acting, "/queues/q/scheduled/delete", id=["x/3", "x/4"], sure="yes")
        assert states(inspector) == {"pending": 2, "scheduled": 3, "archived": 1}
        asked = send(acting, "/queues/q/scheduled/run", all="1")
        assert (asked.status, "Run all 3 scheduled tasks of q" in text_of(asked)) == (200, True)
        send(acting, "/queues/q/scheduled/run", all="1", sure="yes")
        wait_until(lambda: states(inspector) == {"pending": 5, "archived": 1})
        assert send(acting, "/queues/q/pending/run", id="x/0").status == 400
        assert send(acting, "/queues/q/nothing/run", id="x/0").status == 404


def test_forms_act_on_queues(acting: Served, url: str) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        client.enqueue("t", queue="q")
        assert send(acting, "/queues/q/pause", state="pending").headers["location"] == "/queues/q/pending?did=pause"
        assert inspector.get_queue_info("q").paused
        again = send(acting, "/queues/q/pause")
        assert (again.status, "already paused" in text_of(again)) == (409, True)
        assert send(acting, "/queues/q/resume").headers["location"] == "/"
        assert not inspector.get_queue_info("q").paused
        assert "Delete the queue q with its 1 task?" in text_of(send(acting, "/queues/q/delete"))
        assert send(acting, "/queues/q/delete", sure="yes").status == 409  # it has a task, and no word about it
        assert send(acting, "/queues/q/delete", sure="yes", force="yes").headers["location"] == "/"
        assert inspector.queues() == []


def test_servers_are_told_to_quiet_and_stop_after_a_question(acting: Served, db: Redis) -> None:
    publish_server(db, "s1", "worker-1", [])
    assert "Stop…" in text_of(acting.get("/servers"))
    assert "Shut down worker-1:4211?" in text_of(send(acting, "/servers/s1/stop"))
    deaf = send(acting, "/servers/s1/stop", sure="yes")
    assert (deaf.status, "send SIGTERM to 4211 on worker-1" in text_of(deaf)) == (409, True)
    with db.pubsub(ignore_subscribe_messages=True) as listener:  # type: ignore[no-untyped-call]  # redis-py
        listener.subscribe("asynq:control:s1")
        wait_until(lambda: db.pubsub_numsub("asynq:control:s1")[0][1] == 1)
        told = send(acting, "/servers/s1/quiet", sure="yes")
        assert told.headers["location"] == "/servers?did=quiet"
        wait_until(lambda: (listener.get_message() or {}).get("data") == b'{"do":"quiet"}')
    assert "told to fetch no more" in text_of(acting.get("/servers?did=quiet"))
    assert send(acting, "/servers/s2/stop", sure="yes").status == 404


def test_the_doctor_finds_and_repairs(acting: Served, url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="q")
    db.lpush("asynq:{q}:pending", "ghost")
    assert send(acting, "/doctor/repair", sure="yes").status == 409
    wait_until(lambda: "Repair…" in text_of(acting.get("/doctor")), interval_s=0.2)
    assert "ghost" in text_of(acting.get("/doctor"))
    assert "Repair what can be repaired safely?" in text_of(send(acting, "/doctor/repair"))
    assert send(acting, "/doctor/repair", sure="yes").status == 303
    wait_until(lambda: db.llen("asynq:{q}:pending") == 1)


def test_who_may_not_act_sees_no_buttons(url: str) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="q", task_id="x")
    paths = ("/", "/queues/q/pending", "/queues/q/tasks/x")
    with serving(FastqWeb(url, read_only=True, auth=None)) as served:
        for path in paths:
            assert "<button" not in served.get(path).text.partition("<main")[2].partition("</main>")[0]
    with serving(FastqWeb(url, forbidden=["task.delete", "queue.delete"], auth=None)) as served:
        for path in paths:
            assert "elete" not in served.get(path).text
            assert "<button" in served.get(path).text


def test_an_empty_redis_and_one_that_is_down_are_shown_in_words(url: str, tmp_path: Path) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        assert "There are no queues yet" in text_of(served.get("/"))
        assert "No server is running" in text_of(served.get("/servers"))
        assert "No scheduler is running" in text_of(served.get("/schedulers"))
        missing = served.get("/queues/none/active")
        assert (missing.status, "queue not found" in text_of(missing)) == (404, True)
    with serving(FastqWeb(f"unix://{tmp_path}/none.sock", auth=None)) as served:
        answer = served.get("/")
        assert (answer.status, "Redis does not answer" in text_of(answer)) == (503, True)
        assert served.get("/api/queues").status == 500  # as asynqmon


def test_json_is_laid_out_without_being_changed() -> None:
    for text in ('{"a":1e999,"a":-0.0,"b":[[],{}]}', '"only"', "[1, 2]", json.dumps("\u202e\x07\n"), EXACT):
        part = layout(text.encode())
        assert part.kind == "JSON"
        assert "".join(unescape(TAG.sub("", part.html)).split()) == "".join(text.split())
    assert layout('"\u202e"'.encode()).html == Markup(
        '<span class="js">&#34;\\u202e&#34;</span>'
    )  # it would turn the line
    assert layout(b"12").kind == layout(b"{'a'}").kind == layout(b"[" * 100_000).kind == "text"
    assert layout(b"a\x00b").kind == "bytes"
    assert preview("é".encode() * 1_000) == "é" * 140 + "…"
    assert preview(b"\xff" * 600).startswith("600 bytes: ff ff")
    assert layout(b'{"n": ' + b"9" * 10_000 + b"}").kind == "JSON"


def test_no_page_waits_for_its_template_to_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render._templates, "cache", {})
    render.load_templates()
    monkeypatch.setattr(PackageLoader, "load", None)
    for name in ("overview.jinja", "task.jinja", "error.jinja"):
        assert render._templates.get_template(name).name == name


def test_a_deeply_nested_payload_is_no_large_page() -> None:
    data = b"[" * 400 + b",".join([b"1"] * 30_000) + b"]" * 400
    assert len(layout(data).html) < 3_000_000
    assert layout(b'{"<a>": ["&", null]}').html == (
        '{\n  <span class="jk">&#34;&lt;a&gt;&#34;</span>: [\n    <span class="js">&#34;&amp;&#34;</span>,\n'
        '    <span class="jl">null</span>\n  ]\n}'
    )


def test_it_is_mounted_in_another_app(url: str) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="a/b", task_id="x")
    app = Starlette(routes=[Mount("/monitoring/tasks", app=FastqWeb(url, auth=None))])
    with serving(app) as served:
        page = served.get("/monitoring/tasks/")
        assert 'href="/monitoring/tasks/queues/a~2Fb/pending"' in page.text
        assert served.get("/monitoring/tasks/queues/a%2Fb/pending").status == 200
        paused = send(served, "/monitoring/tasks/queues/a~2Fb/pause", state="pending")
        assert paused.headers["location"] == "/monitoring/tasks/queues/a~2Fb/pending?did=pause"
        (sheet,) = re.findall(r'<link rel="stylesheet" href="([^"]*)"', page.text)
        assert served.get(sheet).status == 200
        assert served.get("/monitoring/tasks/api/queues/a%2Fb").json["current"]["paused"]
