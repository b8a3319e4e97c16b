"""``fastq lane``."""

import pytest
from redis import Redis

from fastq.wire import keys
from tests.broker.harness import THEIRS
from tests.cli.commands import Fastq, checked_json
from tests.inspector.harness import Seeded
from tests.inspector.test_lanes import LATER_US, hold, lane

Q = ("-q", "default")
NO_SERVER = "fastq: note: no running server serves default\n"


@pytest.fixture
def queue(db: Redis) -> Seeded:
    queue = Seeded(db)
    db.hset(keys.limits("default"), mapping={"*": "2:200000:1:1", "openai:*": "2:0:1:1", "calm": "0:0:1:3"})
    lane(queue, "acme", 1200, full=LATER_US)
    hold(queue, "acme", "r1", "r2")
    lane(queue, "calm")
    lane(queue, "slow", turn=1_800_000_000_250_000)
    lane(queue, "openai:x", turn=None)
    hold(queue, "openai:*", "r1")
    queue.activate("gone", owner=THEIRS, until_s=1)
    db.sadd(keys.held("default", "openai:*"), "gone")
    return queue


def test_lanes_are_listed_with_the_reason_why_they_wait(queue: Seeded, fastq: Fastq) -> None:
    result = fastq.run("lane", "ls", *Q)
    assert (result.exit_code, result.stderr) == (0, NO_SERVER)
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "LANE WAITING RUNNING LIMIT WHY IT WAITS",
        "* - - 2, 5/s -",
        "acme 1,200 2/2 (2, 5/s) full: r1, r2",
        "calm 1 - weight 3 ready",
        "openai:* - 2/2 2 full: gone (lost with its server), r1",
        "openai:x 1 0/2 (2, 5/s) openai:* full: gone (lost with its server), r1",
        "slow 1 0/2 (2, 5/s) rate until 08:00:00.25",
    ]


def test_given_lanes_are_listed(queue: Seeded, fastq: Fastq) -> None:
    lines = fastq.run("lane", "ls", "slow", "none", *Q).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["slow", "none"]


def test_a_queue_and_a_pause_hold_lanes_back(queue: Seeded, fastq: Fastq) -> None:
    queue.db.hset(
        keys.limits("default"), mapping={"": "3:0:1:1", "calm": "0:0:1:3:paused", "other:*": "0:0:0:0:paused"}
    )
    lane(queue, "other:x")
    lines = fastq.run("lane", "ls", *Q).stdout.splitlines()
    shown = {line.split()[0]: " ".join(line.split()[-2:]) for line in lines}
    assert shown["slow"] == "queue full"
    assert shown["(the"] == "3 full"
    assert shown["calm"].endswith(" paused")
    assert shown["other:x"] == "other:* paused"
    queue.db.set(keys.paused("default"), 1)
    assert fastq.run("lane", "ls", "acme", *Q).stdout.splitlines()[1].endswith("queue paused")


def test_a_server_that_serves_the_queue_ends_the_note(queue: Seeded, fastq: Fastq, db: Redis) -> None:
    db.delete(*db.keys("*"))
    assert fastq.failure("lane", "ls", *Q) == ("fastq: queue not found (queue='default'); there are no queues here yet")
    db.sadd(keys.all_queues(), "default")
    assert fastq.done("lane", "ls", *Q) == "There are no lanes in default.\n"
    assert fastq.json("lane", "ls", *Q) == []


def test_a_lane_as_json(queue: Seeded, fastq: Fastq) -> None:
    result = fastq.run("lane", "ls", "acme", "slow", *Q, "--json")
    acme, slow = checked_json(result.stdout, "lane ls")
    assert acme == {
        "queue": "default",
        "lane": "acme",
        "waiting": 1200,
        "running": 2,
        "limit": "2, 5/s",
        "has_own_limit": False,
        "state": "full",
        "by": "acme",
        "until": None,
        "holders": ["r1", "r2"],
        "lost_holders": [],
        "retried_holders": [],
    }
    assert (slow["state"], slow["until"]) == ("rate", "2027-01-15T08:00:00.250000Z")


def test_limits_are_set_and_removed(fastq: Fastq, db: Redis) -> None:
    assert fastq.done("lane", "limit", "*", "2, 5/s", *Q) == "* of default: 2, 5/s.\n"
    assert fastq.done("lane", "limit", "acme", "no limit", *Q) == "acme of default: no limit.\n"
    assert fastq.done("lane", "limit", "openai:*", "500/m", *Q) == "openai:* of default: 500/m.\n"
    assert fastq.done("lane", "limit", "--whole-queue", "9", *Q) == "(the queue) of default: 9.\n"
    rules = {b"*": b"2:200000:1:1", b"acme": b"0:0:1:1", b"openai:*": b"0:120000:1:1", b"": b"9:0:1:1"}
    assert db.hgetall(keys.limits("default")) == rules
    assert fastq.done("lane", "limit", "acme", "--remove", *Q) == "acme of default: 2, 5/s.\n"
    assert fastq.done("lane", "limit", "acme", "--remove", *Q) == "acme of default has no limit of its own.\n"
    assert fastq.done("lane", "limit", "--whole-queue", "--remove", *Q) == "(the queue) of default: no limit.\n"


def test_the_last_limit_of_a_queue_with_tasks_stays_and_it_is_said(queue: Seeded, fastq: Fastq) -> None:
    queue.db.delete(keys.limits("default"))
    queue.db.hset(keys.limits("default"), "*", "2:0:1:1")
    remove = ("lane", "limit", "*", "--remove", *Q)
    stays = "This stays, as the queue has tasks: remove it again once it is empty, unless it is to have lanes."
    assert fastq.done(*remove) == f"* of default: no limit. {stays}\n"
    assert queue.db.hgetall(keys.limits("default")) == {b"*": b"0:0:1:1"}
    queue.db.delete(keys.groups("default"), keys.active("default"))
    assert fastq.done(*remove) == "* of default: no limit.\n"
    assert not queue.db.exists(keys.limits("default"))
    assert fastq.json("lane", "limit", "acme", "3", *Q)["limit"] == "3"


def test_a_sequence_says_for_what_it_waits(queue: Seeded, fastq: Fastq, db: Redis) -> None:
    assert fastq.done("lane", "limit", "acme", "1, strict", *Q) == "acme of default: 1, strict.\n"
    db.srem(keys.held("default", "acme"), "r1")
    db.zrem(keys.lease("default"), "r2")
    assert "1/1  1, strict  full: r2 (to be tried again)" in fastq.run("lane", "ls", "acme", *Q).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("acme",), "expected LANE and LIMIT, not 'acme'"),
        (("acme", "2", "5/s"), "expected LANE and LIMIT, not 'acme 2 5/s'"),
        (("acme", "2", "--remove"), "expected LANE, not 'acme 2'"),
        (("--whole-queue", "acme", "2"), "expected LIMIT, not 'acme 2'"),
        (("--whole-queue", "--remove", "2"), "expected neither LANE nor LIMIT, not '2'"),
        (("acme", "two"), "'two' in 'two' is no part of a limit"),
        (("acme", "strict"), "order='strict' needs concurrency=1, one task after the other, not None"),
        (("openai:*", "1, strict"), "order='strict' is for lanes; 'openai:*' is a pool"),
        (("acme", "0"), "concurrency must be at least 1, not 0; pause the lane instead"),
        (("a*", "2"), "'a*' is neither a lane, nor '*' for each lane, nor a pool such as 'openai:*'"),
        (("--whole-queue", "5/s"), "a queue as a whole has a concurrency only, not '5/s'"),
    ],
)
def test_a_wrong_limit_is_a_usage_error(fastq: Fastq, db: Redis, words: tuple[str, ...], said: str) -> None:
    assert said in fastq.failure("lane", "limit", *words, *Q, code=2)
    assert db.keys("*") == []


def test_lanes_are_paused_and_resumed(fastq: Fastq, db: Redis) -> None:
    assert fastq.done("lane", "pause", "acme", "openai:*", *Q) == "Paused acme.\nPaused openai:*.\n"
    line = fastq.failure("lane", "pause", "acme", *Q)
    assert line == "fastq: lane is already paused (queue='default', lane='acme')"
    assert fastq.json("lane", "resume", "acme", "openai:*", *Q) == {"count": 2, "failed": []}
    assert fastq.run("lane", "resume", "acme", "openai:*", *Q).exit_code == 1
    assert "neither a lane" in fastq.failure("lane", "pause", "a*", *Q, code=2)


def test_a_drain_waits_for_tasks_that_wait_and_run(fastq: Fastq, queue: Seeded, db: Redis) -> None:
    assert fastq.done("lane", "drain", "none", *Q) == "none is empty.\n"
    result = fastq.run("lane", "drain", "acme", *Q, "--timeout", "0.01")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"{NO_SERVER}fastq: time is up: acme: 1,200 tasks waiting, 2 running\n"
    db.delete(keys.group("default", "acme"))
    assert fastq.failure("lane", "drain", "acme", *Q, "--timeout", "0s") == (
        "fastq: time is up: acme: 0 tasks waiting, 2 running"
    )
    db.hset(keys.limits("default"), "calm", "0:0:1:3:paused")
    result = fastq.run("lane", "drain", "calm", *Q)
    assert (result.exit_code, result.stderr) == (1, f"{NO_SERVER}fastq: it is paused: calm: 1 task waiting\n")
    assert fastq.json("lane", "drain", "none", *Q)["state"] == "idle"
    assert "neither seconds nor a duration" in fastq.failure("lane", "drain", "x", *Q, "--timeout", "x", code=2)
