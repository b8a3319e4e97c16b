"""The page of lanes: why their tasks wait, and its forms."""

from collections.abc import Iterator

import pytest
from redis import Redis

from fastq import Inspector, Limit
from fastq.web import FastqWeb
from fastq.wire import keys
from tests.broker.harness import THEIRS
from tests.inspector.harness import Seeded
from tests.inspector.test_lanes import LATER_US, hold, lane
from tests.web.serving import Served, serving
from tests.web.test_pages import send, text_of

PAGE = "/queues/default/lanes"


@pytest.fixture
def served(url: str, db: Redis) -> Iterator[Served]:
    queue = Seeded(db)
    db.hset(keys.limits("default"), mapping={"*": "2:200000:1:1", "openai:*": "9:0:1:1"})
    lane(queue, "acme", 1200, full=LATER_US)
    hold(queue, "acme", "r1")
    queue.activate("gone", owner=THEIRS, until_s=1)
    db.sadd(keys.held("default", "acme"), "gone")
    lane(queue, "slow", turn=1_800_000_000_250_000)
    with serving(FastqWeb(url, auth=None)) as served:
        yield served


def test_the_page_says_why_tasks_wait(served: Served) -> None:
    answer = served.get(PAGE)
    text = text_of(answer)
    for seen in (
        "No running server serves this queue.",
        "acme 1,200 2/2 (2, 5/s) full gone lost with its server r1 Pause",
        "slow 1 0/2 (2, 5/s) rate until 08:00:00.25 Pause",
        "* each lane without a limit of its own \u2013 \u2013 2, 5/s \u2013 Pause",
        "openai:* these lanes together \u2013 0/9 9 \u2013 Pause",
    ):
        assert seen in text
    assert f'href="{PAGE.replace("lanes", "tasks")}/r1"' in answer.text
    assert f'href="{PAGE}"' in served.get("/queues/default/active").text
    assert "slow" not in text_of(served.get(f"{PAGE}?lane=acme"))
    assert f'href="{PAGE}?lane=slow">Why it waits</a>' in served.get("/queues/default/tasks/slow-0").text
    assert served.get("/queues/nosuch/lanes").status == 404


def test_the_page_says_for_what_a_sequence_waits(served: Served, db: Redis) -> None:
    send(served, f"{PAGE}/limit", lane="orders", limit="1, strict")
    db.sadd(keys.held("default", "orders"), "r2")
    lane(Seeded(db), "orders", full=LATER_US)
    assert "orders 1 1/1 1, strict full r2 to be tried again" in text_of(served.get(PAGE))


def test_the_limit_of_the_queue_is_shown(served: Served, url: str) -> None:
    assert "may have" not in text_of(served.get(PAGE))
    with Inspector(url) as inspector:
        inspector.set_max_pending("default", 5000)
    assert "The queue may have 5,000 pending tasks; it has 0." in text_of(served.get(PAGE))
    assert "Limit 5,000 pending" in text_of(served.get("/queues/default/active"))


def test_limits_are_set_and_removed_and_lanes_paused(served: Served, url: str) -> None:
    assert send(served, f"{PAGE}/limit", lane="acme", limit="3").headers["location"] == f"{PAGE}?did=limit"
    assert "The limit is changed." in text_of(served.get(f"{PAGE}?did=limit"))
    send(served, f"{PAGE}/limit", lane="", limit=" 50 ")
    assert send(served, f"{PAGE}/pause", lane="acme", only="1").headers["location"] == f"{PAGE}?lane=acme&did=pause"
    assert "acme 1,200 2/3 3 paused" in text_of(served.get(PAGE))
    assert "Resume" in text_of(served.get(f"{PAGE}?lane=acme"))
    with Inspector(url) as inspector:
        assert inspector.get_lane("default", "acme").limit == Limit(3)
        assert inspector.get_lane("default", None).limit == Limit(50)
        send(served, f"{PAGE}/resume", lane="acme")
        send(served, f"{PAGE}/limit", lane="acme", limit="")
        assert not inspector.get_lane("default", "acme").has_own_limit


@pytest.mark.parametrize(
    ("verb", "fields", "said"),
    [
        ("limit", {"lane": "acme", "limit": "two"}, "'two' in 'two' is no part of a limit"),
        ("limit", {"lane": "a*", "limit": "2"}, "'a*' is neither a lane"),
        ("resume", {"lane": "acme"}, "lane is not paused itself; `fastq lane ls` shows what else pauses it"),
        ("pause", {}, "the form names no lane"),
        ("pause", {"lane": ""}, "no lane is named; a queue as a whole has a pause of its own"),
    ],
)
def test_what_cannot_be_is_said(served: Served, verb: str, fields: dict[str, str], said: str) -> None:
    answer = send(served, f"{PAGE}/{verb}", **fields)
    assert answer.status in (400, 409)
    assert said in text_of(answer)


@pytest.mark.parametrize("query", ["lane=%ff", "lane=%00", "cursor=%ff", "lane=a*", "size=-1", "did=x"])
def test_a_query_that_makes_no_sense_is_no_defect(served: Served, query: str) -> None:
    assert served.get(f"{PAGE}?{query}").status < 500


def test_who_only_looks_has_no_forms(url: str, served: Served) -> None:
    with serving(FastqWeb(url, auth=None, read_only=True)) as only:
        assert "acme" in text_of(only.get(PAGE))
        assert '<form method="post"' not in only.get(PAGE).text
        assert send(only, f"{PAGE}/pause", lane="acme").status == 405
