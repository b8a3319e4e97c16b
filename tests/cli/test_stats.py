"""``fastq stats``."""

import os
import pty
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from redis import Redis

from fastq.broker.operations.history import add_history
from fastq.broker.transport.open import open_broker
from fastq.wire import keys
from fastq.wire.history import BUCKETS, COUNTERS
from tests.cli.commands import Fastq, read_terminal
from tests.e2e.harness import ROOT


def test_stats_counts_by_state_and_queue(filled: Fastq) -> None:
    lines = filled.lines("stats")
    assert lines[0] == "Tasks by state"
    assert lines[1] == "ACTIVE PENDING AGGREGATING SCHEDULED RETRY ARCHIVED COMPLETED"
    assert lines[2] == "2 4 2 2 1 1 1"
    rows = {line.split()[0]: line for line in lines[lines.index("Queues") + 2 :]}
    assert rows["default"].startswith("default 12 2 3 2 2 1 1 1 ")
    assert rows["default"].endswith(" 40 10 25.00%")
    assert rows["critical"].startswith("critical 1 0 1 0 0 0 0 0 ")
    assert rows["low"].startswith("low (paused) 0 0 0 0 0 0 0 0 - ")
    assert lines[lines.index("40 10 25.00% 0") - 1] == "PROCESSED FAILED ERRORS LOST"


def test_what_was_lost_today_is_shown(filled: Fastq, db: Redis) -> None:
    today = datetime.now(UTC).date()
    for day in (today, today + timedelta(days=1)):  # in case that midnight is about to come
        db.mset({keys.lost("default", day): 1200, keys.lost("low", day): 2})
    db.set(keys.lost("low", today - timedelta(days=2)), 9)
    lines = filled.lines("stats")
    assert "40 10 25.00% 1,202" in lines
    assert [line for line in lines if "lost" in line] == [
        "default: 1,200 tasks were lost with their servers today",
        "low: 2 tasks were lost with their servers today",
    ]
    assert "Lost 1,200 today, with their servers" in filled.lines("queue", "inspect", "default")
    assert "Lost none today" in filled.lines("queue", "inspect", "critical")
    assert [queue["lost"] for queue in filled.json("queue", "inspect", "default", "low")] == [1200, 2]


def test_stats_fits_a_small_terminal(filled: Fastq, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    env = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}
    program = [sys.executable, "-m", "fastq", "-u", filled.url, "stats"]
    with subprocess.Popen(program, env=env, stdout=follower) as process:
        os.close(follower)
        lines = read_terminal(leader).splitlines()
        assert process.wait() == 0
    os.close(leader)
    assert max(map(len, lines)) < 80
    assert lines[1].split() == ["ACTIVE", "PENDING", "AGGREGATING", "SCHEDULED", "RETRY", "ARCHIVED", "COMPLETED"]
    titles = ["QUEUE", "SIZE", "ACT", "PEND", "AGGR", "SCHED", "RETRY", "ARCH", "COMPL", "LATENCY"]
    shown = lines[lines.index("Queues") + 1].split()
    assert shown[: len(titles)] == titles  # MEMORY, too, if its numbers are short
    assert "ERRORS" not in shown


def test_stats_tells_of_redis(filled: Fastq, db: Redis) -> None:
    facts: Any = db.info("server")
    lines = filled.lines("stats")
    assert f"Version Redis {facts['redis_version']}" in lines
    for name in ("Up for ", "Connections ", "Memory ", "Peak memory "):
        (line,) = (line for line in lines if line.startswith(name))
        assert line != f"{name}-"


def test_stats_has_the_json_of_asynq(filled: Fastq) -> None:
    found = filled.json("stats")
    assert {name: found["aggregate"][name] for name in ("active", "pending", "processed", "failed")} == {
        "active": 2,
        "pending": 4,
        "processed": 40,
        "failed": 10,
    }
    assert [queue["Queue"] for queue in found["queues"]] == ["critical", "default", "low"]
    default = found["queues"][1]
    assert (default["Size"], default["Groups"], default["ProcessedTotal"], default["FailedTotal"]) == (12, 1, 1040, 110)
    assert default["Latency"] > 0
    assert found["queues"][2]["Paused"] is True
    assert found["redis"]["redis_mode"] == "standalone"


def test_stats_of_an_empty_redis(fastq: Fastq) -> None:
    assert "There are none yet." in fastq.done("stats")
    found = fastq.json("stats")
    assert found["queues"] == []
    assert found["aggregate"]["pending"] == 0


def test_stats_are_shown_to_a_user_who_may_not_ask_for_redis_own(filled: Fastq, db: Any) -> None:
    db.execute_command("ACL", "SETUSER", "plain", "on", ">word", "~*", "&*", "+@all", "-info")
    try:
        plain = Fastq(f"{filled.url}?username=plain&password=word")
        assert "The Redis user may not read it." in plain.done("stats")
        assert plain.json("stats")["redis"] == {}
    finally:
        db.execute_command("ACL", "DELUSER", "plain")


def test_a_queue_whose_name_is_no_text_is_skipped_and_that_is_said(filled: Fastq, db: Redis) -> None:
    db.sadd(keys.all_queues(), b"\xff")
    for words in (("stats",), ("stats", "--json")):
        result = filled.run(*words)
        assert (result.exit_code, "default" in result.stdout) == (0, True)
        assert result.stderr == "fastq: skipped: queue must be valid Unicode text: '\\udcff'\n"


def add_runs(db: Redis, url: str) -> None:
    """Let servers have done something of late in the queue default."""
    mail, image = ([0] * COUNTERS for _ in range(2))
    mail[:5] = 1203, 4, 3, 1, 2
    image[0] = 7
    mail[5 + 1] = mail[5 + BUCKETS + 13] = 1207  # run times of at most 2.5 ms, waits of at most 30 s
    db.set(keys.processed_total("default"), 1)
    with closing(open_broker(url)) as broker:
        assert broker.run(add_history("default", int(time.time()), {"mail:": mail, "image\x1b": image}))


def test_stats_since_shows_what_became_of_runs(filled: Fastq, db: Redis) -> None:
    add_runs(db, filled.url)
    lines = filled.lines("stats", "--since", "90m")
    assert lines[0] == "The last 1h 30m"
    assert lines[1] == "QUEUE DONE FAILED ERRORS RETRIED ARCHIVED LOST RUN P50 RUN P95 WAIT P50 WAIT P95"
    numbers = "4 0.33% 3 1 2 2.5ms 2.5ms 30s 30s"
    assert lines[2:] == [
        f"default 1,210 {numbers}",
        "By type",
        "QUEUE TYPE DONE FAILED ERRORS RETRIED ARCHIVED LOST RUN P50 RUN P95 WAIT P50 WAIT P95",
        r"default image\x1b 7 0 0.00% 0 0 0 - - - -",
        f"default mail: 1,203 {numbers}",
    ]
    assert "By type" not in filled.done("stats", "--since", "336h")


def test_stats_since_as_json_has_a_point_a_minute(filled: Fastq, db: Redis) -> None:
    add_runs(db, filled.url)
    found = filled.json("stats", "--since", "1h")
    assert (found["since_s"], [one["queue"] for one in found["queues"]]) == (3600, ["critical", "default", "low"])
    critical, default, _ = found["queues"]
    assert (critical["types"], critical["total"]["done"], critical["total"]["run_p50_s"]) == ({}, 0, None)
    assert (default["step_s"], len(default["points"])) == (60, 60)
    assert sum(point["done"] for point in default["points"]) == default["total"]["done"] == 1210
    mail = default["types"]["mail:"]
    assert (mail["failed"], mail["lost"], mail["run_p99_s"], mail["wait_p50_s"]) == (4, 2, 0.0025, 30)


def test_stats_since_without_history_says_so(filled: Fastq) -> None:
    assert "No fastq server has written of any run" in filled.done("stats", "--since", "1h")
    for word, text in (("soon", "neither seconds nor a duration"), ("337h", "at most 14 days"), ("0", "above 0")):
        assert text in filled.failure("stats", "--since", word, code=2)
