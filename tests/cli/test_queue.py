"""``fastq queue``."""

from datetime import date, timedelta

import pytest
from redis import Redis

from fastq import Client, QueueFullError
from fastq.wire import keys
from tests.cli.commands import Fastq
from tests.redis_servers import redis_cluster


def test_queues_are_listed_by_name(filled: Fastq) -> None:
    assert filled.done("queue", "ls") == "critical\ndefault\nlow\n"
    assert filled.done("queue", "list") == "critical\ndefault\nlow\n"
    assert filled.json("queue", "ls") == [{"queue": "critical"}, {"queue": "default"}, {"queue": "low"}]


def test_without_queues_none_are_listed(fastq: Fastq) -> None:
    assert fastq.done("queue", "ls") == ""
    assert fastq.json("queue", "ls") == []


def test_a_name_cannot_upset_the_terminal(fastq: Fastq, db: Redis) -> None:
    db.sadd(keys.all_queues(), b"\x1b[2Jq", b"\xff")
    assert fastq.lines("queue", "ls") == ["\\x1b[2Jq", "\\udcff"]
    assert fastq.json("queue", "ls") == [{"queue": "\x1b[2Jq"}, {"queue": "\udcff"}]


@pytest.mark.slow
def test_of_a_cluster_the_place_of_each_queue_is_told() -> None:
    with redis_cluster() as servers:
        addrs = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        with servers[0].client() as client:
            slot = client.execute_command("CLUSTER", "KEYSLOT", "asynq:{default}:pending")
        fastq = Fastq(f"redis-cluster://{addrs}")
        with Client(fastq.url) as producer:
            producer.enqueue("t")
        (found,) = fastq.json("queue", "ls")
        assert (found["queue"], found["key_slot"]) == ("default", slot)
        assert found["nodes"][0]["addr"] in addrs
        lines = fastq.lines("queue", "ls", "--cluster")
        assert lines == ["QUEUE KEY SLOT NODES", f"default {slot} {found['nodes'][0]['addr']}"]
        assert "State ok" in fastq.lines("stats")
        assert "Known nodes 3" in fastq.lines("stats")


def test_queues_are_described(filled: Fastq) -> None:
    lines = filled.lines("queue", "inspect", "default", "low")
    at = lines.index("low")
    default, low = lines[:at], lines[at:]
    assert default[:4] == ["default", "Size 12", "Groups 1", "Paused no"]
    assert "2 3 2 2 1 1 1" in default
    assert default[-2:] == ["today (UTC) 40 10 25.00%", "in total 1,040 110 10.58%"]
    assert low[1:5] == ["Size 0", "Groups 0", "Paused yes", "Latency -"]


def test_a_queue_is_described_as_json(filled: Fastq) -> None:
    (found,) = filled.json("queue", "inspect", "default")
    counts = {name: found[name] for name in ("size", "pending", "active", "retry", "processed", "failed_total")}
    assert counts == {"size": 12, "pending": 3, "active": 2, "retry": 1, "processed": 40, "failed_total": 110}
    assert found["paused"] is False


def test_what_cannot_be_described_keeps_no_other_from_it(filled: Fastq) -> None:
    result = filled.run("queue", "inspect", "defalt", "low")
    assert result.exit_code == 1
    assert result.stderr == "fastq: queue not found (queue='defalt'); did you mean 'default'?\n"
    assert "low" in result.stdout


def test_a_limit_is_set_shown_and_removed(filled: Fastq, url: str) -> None:
    assert filled.done("queue", "limit", "default", "4") == "default: at most 4 pending tasks.\n"
    assert "Limit 3 of 4 pending tasks" in filled.lines("queue", "inspect", "default")
    assert filled.json("queue", "inspect", "default")[0]["max_pending"] == 4
    with Client(url) as client:
        client.enqueue("t")
        with pytest.raises(QueueFullError):
            client.enqueue("t")
    assert filled.json("queue", "limit", "default", "--remove") == {"queue": "default", "max_pending": None}
    assert "Limit none" in filled.lines("queue", "inspect", "default")
    assert filled.done("queue", "limit", "default", "--remove") == "default: any number of pending tasks.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("4", "--remove"), "expected PENDING, or --remove in its place"),
        ((), "expected PENDING, or --remove in its place"),
        (("0",), "0 is not in the range 1<=x<=1000000000"),
        (("many",), "'many' is not a valid integer"),
    ],
)
def test_what_is_no_limit_is_refused(words: tuple[str, ...], said: str, filled: Fastq, db: Redis) -> None:
    result = filled.run("queue", "limit", "default", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not db.exists(keys.quota("default"))


def test_history_tells_each_day(filled: Fastq, db: Redis) -> None:
    lines = filled.lines("queue", "history", "default", "-x", "3")
    assert lines[:2] == ["default", "DATE PROCESSED FAILED ERRORS"]
    days = [date.fromisoformat(line.split(" ", 1)[0]) for line in lines[2:]]
    assert [days[0] - day for day in days] == [timedelta(days=ago) for ago in range(3)]
    counted = [bool(db.exists(keys.processed("default", day))) for day in days]
    assert counted in ([True, False, False], [True, True, False])  # where midnight came meanwhile there are two
    told = ["40 10 25.00%" if is_counted else "0 0 -" for is_counted in counted]
    assert [line.split(" ", 1)[1] for line in lines[2:]] == told
    (found,) = filled.json("queue", "history", "default")
    assert len(found["days"]) == 10
    assert found["days"][0]["processed"] == 40


def test_queues_are_paused_and_resumed(filled: Fastq, db: Redis) -> None:
    assert filled.done("queue", "pause", "default", "critical") == "Paused default.\nPaused critical.\n"
    assert db.exists(keys.paused("default"), keys.paused("critical")) == 2
    assert filled.done("queue", "resume", "default") == "Resumed default.\n"
    assert filled.done("queue", "unpause", "critical") == "Resumed critical.\n"
    assert db.exists(keys.paused("default"), keys.paused("critical")) == 0


def test_one_in_the_wrong_state_keeps_no_other_from_it(filled: Fastq, db: Redis) -> None:
    result = filled.run("queue", "pause", "low", "default")
    assert (result.exit_code, result.stdout) == (1, "Paused default.\n")
    assert result.stderr == "fastq: queue is already paused (queue='low')\n"
    assert "not paused" in filled.failure("queue", "resume", "critical")


def test_a_queue_that_there_is_not_is_paused_only_if_that_is_meant(filled: Fastq, db: Redis) -> None:
    line = filled.failure("queue", "pause", "defalt")
    assert line == "fastq: queue not found (queue='defalt'); did you mean 'default'?"
    assert not db.exists(keys.paused("defalt"))
    assert filled.done("queue", "pause", "new", "--ahead") == "Paused new.\n"
    assert db.exists(keys.paused("new"))
