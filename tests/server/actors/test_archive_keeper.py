"""The rule of an archive: every script that archives follows it, what is dropped is said, what spills is in a file."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fastq import Inspector
from fastq.broker.operations.archive_rule import ArchiveRule, drop_archived, read_archive_rule
from fastq.broker.operations.finish import ANY_OWNER, Archived, archive
from fastq.inspector.line_reading import read_line
from fastq.server.actors.archive_keeper import ArchiveKeeper
from fastq.server.actors.janitor import Janitor
from fastq.server.base.config import ServerConfig
from fastq.wire import keys
from tests.broker.harness import NOW, NOW_S, QUEUE, QueueBench, message
from tests.server.harness import Bench, logged, on_bench

DAY_S = 86_400


async def janitor_of(bench: Bench, **settings: Any) -> Janitor:
    """Return the janitor of a server with these settings, once its rules are set."""
    config = ServerConfig(queues={QUEUE: 1}, **settings)
    keeper = ArchiveKeeper(bench.broker, config, bench.clock)
    keeper.make_directory()
    await keeper.set_rules()
    return Janitor(bench.commands, config, keeper, bench.clock, bench.outage)


async def fail(bench: Bench, *task_ids: str) -> None:
    bench.queue.activate(*task_ids)
    await bench.commands.run(archive(QUEUE, [Archived(one, message(one)) for one in task_ids], NOW, ANY_OWNER))


def dropped(queue: QueueBench) -> int:
    return int(queue.db.hget(keys.archive_rule(QUEUE), "dropped") or 0)


def test_a_smaller_archive_keeps_the_newest_and_counts_what_it_drops(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        janitor = await janitor_of(bench, archive_max={QUEUE: 2}, archive_ttl=DAY_S)
        bench.queue.archive({"too old": NOW_S - DAY_S - 1, "old": NOW_S - 2})
        await fail(bench, "a", "b")
        assert bench.queue.places()["archived"] == ["a", "b"]
        assert dropped(bench.queue) == 2
        await janitor.tick()
        await fail(bench, "c")
        await janitor.tick()
        await fail(bench, "d")
        await janitor.tick()  # within the minute
        bench.clock.advance(60)
        await janitor.tick()

    on_bench(db, url, test)
    said = [line for line in logged(caplog) if "dropped" in line]
    assert [line.split(" failed")[0] for line in said] == ["queue default: the archive dropped 1"] * 2


@pytest.mark.parametrize("way", ["archive_task", "archive_all_tasks"])
def test_inspectors_follow_the_rule(way: str, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        await janitor_of(bench, archive_max=2)
        for name in "abc":
            bench.queue.put(name, "scheduled")
            bench.db.zadd(keys.scheduled(QUEUE), {name: NOW_S})
        bench.db.sadd(keys.all_queues(), QUEUE)
        with Inspector(url) as inspector:
            if way == "archive_all_tasks":
                inspector.archive_all_tasks(QUEUE, "scheduled")
            else:
                for name in "abc":
                    inspector.archive_task(QUEUE, name)
            info = inspector.get_queue_info(QUEUE)
        assert (info.archived, info.archive_max, info.archive_full, info.archive_dropped) == (2, 2, "trim", 1)

    on_bench(db, url, test)


def test_an_archive_that_pauses_drops_nothing(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        janitor = await janitor_of(bench, archive_max=2, archive_full="pause")
        await fail(bench, "a")
        assert not bench.db.exists(keys.paused(QUEUE))
        await fail(bench, "b", "c")
        assert bench.db.get(keys.paused(QUEUE)) == str(NOW_S).encode()
        assert sorted(bench.queue.places()["archived"]) == ["a", "b", "c"]
        await janitor.tick()
        await janitor.tick()
        assert dropped(bench.queue) == 0

    on_bench(db, url, test)
    assert logged(caplog, least=logging.ERROR) == [
        "queue default: its archive is full with 3 failed tasks, and one more pauses the queue; run or delete some, "
        "then fastq queue resume default"
    ]


def test_what_spills_is_in_a_file_that_import_reads_and_in_redis_no_more(db: Redis, url: str, tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        spill = tmp_path / "spilled" / "here"
        janitor = await janitor_of(
            bench, archive_max=2, archive_ttl=DAY_S, archive_full="spill", archive_spill_to=spill
        )
        await fail(bench, "too old")
        bench.db.zadd(keys.archived(QUEUE), {"too old": NOW_S - DAY_S - 1})
        ids = [f"id-{number:03d}" for number in range(450)]
        await fail(bench, *ids)
        bench.db.zadd(keys.archived(QUEUE), {"no task": 1})
        bench.db.hset(keys.task(QUEUE, "id-000"), "unique_key", keys.unique(QUEUE, "t", b""))
        bench.db.set(keys.unique(QUEUE, "t", b""), "id-000")
        await janitor.tick()
        assert bench.queue.places()["archived"] == ids[-2:]
        assert sorted(bench.queue.states()) == ids[-2:]
        assert not bench.db.exists(keys.unique(QUEUE, "t", b""))
        assert dropped(bench.queue) == 0
        (file,) = spill.iterdir()
        assert file.name == f"default-{NOW.date().isoformat()}.jsonl"
        lines = file.read_bytes().splitlines(keepends=True)
        assert [read_line(line).id for line in lines] == ["too old", *ids[:-2]]
        assert json.loads(lines[1])["state"] == "archived"
        await janitor.tick()
        assert file.read_bytes().splitlines(keepends=True) == lines

    on_bench(db, url, test)


def test_nothing_is_deleted_that_could_not_be_written(
    db: Redis, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        janitor = await janitor_of(bench, archive_max=1, archive_full="spill", archive_spill_to=tmp_path / "x")
        (tmp_path / "x" / f"default-{NOW.date().isoformat()}.jsonl").mkdir()
        await fail(bench, "a", "b")
        await janitor.tick()
        assert sorted(bench.queue.places()["archived"]) == ["a", "b"]

    on_bench(db, url, test)
    (line,) = logged(caplog)
    assert line.startswith("queue default: cannot write failed tasks to a file: Is a directory (")
    assert line.endswith("); they stay in Redis")


def test_a_line_that_was_cut_off_spoils_no_other(db: Redis, url: str, tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        file = tmp_path / f"default-{NOW.date().isoformat()}.jsonl"
        file.write_bytes(b'{"id": "cut o')
        janitor = await janitor_of(bench, archive_max=1, archive_full="spill", archive_spill_to=tmp_path)
        await fail(bench, "a", "b")
        await janitor.tick()
        cut, whole = file.read_bytes().splitlines(keepends=True)
        assert cut == b'{"id": "cut o\n'
        assert read_line(whole).id == "a"

    on_bench(db, url, test)


@pytest.mark.parametrize("most", [1, 100])
def test_an_id_whose_task_has_another_state_does_not_keep_those_behind_it(
    most: int, db: Redis, url: str, tmp_path: Path
) -> None:
    async def test(bench: Bench) -> None:
        janitor = await janitor_of(
            bench, archive_max=most, archive_ttl=DAY_S, archive_full="spill", archive_spill_to=tmp_path
        )
        bench.queue.archive({"astray": NOW_S - DAY_S - 9, "a": NOW_S - DAY_S - 8, "b": NOW_S - DAY_S - 7, "c": NOW_S})
        db.hset(keys.task(QUEUE, "astray"), "state", "retry")
        await janitor.tick()
        assert bench.queue.places()["archived"] == ["astray", "c"]
        (file,) = tmp_path.iterdir()
        assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == ["a", "b"]

    on_bench(db, url, test)


def test_what_has_failed_again_since_it_was_read_is_not_dropped(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.archive({"a": NOW_S, "b": NOW_S})
        assert await bench.commands.run(drop_archived(QUEUE, [(b"a", b"%d" % (NOW_S - 1)), (b"b", b"%d" % NOW_S)])) == 1
        assert bench.queue.places()["archived"] == ["a"]
        assert db.exists(keys.task(QUEUE, "a"))

    on_bench(db, url, test)


def test_what_another_server_has_spilled_meanwhile_is_not_spilled_twice(db: Redis, url: str, tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        janitor = await janitor_of(bench, archive_max=5, archive_full="spill", archive_spill_to=tmp_path)
        await fail(bench, *"abcdefghij")
        bench.db.zrem(keys.archived(QUEUE), *"abc")  # by the other, whose drops are not ours
        await janitor.tick()
        assert bench.queue.places()["archived"] == list("fghij")

    on_bench(db, url, test)


def test_the_rule_of_another_server_is_replaced_and_that_is_said(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        assert await bench.commands.run(read_archive_rule(QUEUE)) == ArchiveRule()
        await janitor_of(bench, archive_max=5)
        assert await bench.commands.run(read_archive_rule(QUEUE)) == ArchiveRule(5)
        await janitor_of(bench)  # it sets none, and leaves that of the other
        assert await bench.commands.run(read_archive_rule(QUEUE)) == ArchiveRule(5)
        await janitor_of(bench, archive_max={"*": 7, "other": 9})
        assert await bench.commands.run(read_archive_rule(QUEUE)) == ArchiveRule(7)

    on_bench(db, url, test)
    assert logged(caplog) == [
        "queue default: the archive's rule changed from 5 tasks, 7776000 s, then trim to 7 tasks, 7776000 s, then trim"
    ]


@pytest.mark.parametrize("way", ["flushed", "only its counter is left"])
def test_a_rule_that_redis_has_lost_is_set_again(
    way: str, db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        janitor = await janitor_of(bench, archive_max=5)
        await fail(bench, "a")
        await janitor.tick()
        assert logged(caplog) == []
        bench.db.flushdb()
        if way != "flushed":
            bench.db.hset(keys.archive_rule(QUEUE), "dropped", 7)
        for _ in range(5):  # it leaves out an empty queue three times of four
            await janitor.tick()
        assert await bench.commands.run(read_archive_rule(QUEUE)) == ArchiveRule(5)
        assert dropped(bench.queue) == (0 if way == "flushed" else 7)

    on_bench(db, url, test)
    assert [line for line in logged(caplog) if "rule was gone" in line] == [
        "queue default: the archive's rule was gone from Redis and is set again: 5 tasks, 7776000 s, then trim"
    ]


def test_the_rule_of_the_server_that_started_last_stays_and_the_others_say_so_once(
    db: Redis, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        first = await janitor_of(bench, archive_max=1, archive_full="spill", archive_spill_to=tmp_path)
        last = await janitor_of(bench, archive_max=3)
        caplog.clear()
        await fail(bench, *"abc")
        for janitor in (first, last, first, last):
            await janitor.tick()
        assert await bench.commands.run(read_archive_rule(QUEUE)) == ArchiveRule(3)
        assert bench.queue.places()["archived"] == list("abc")

    on_bench(db, url, test)
    assert list(tmp_path.iterdir()) == []
    assert logged(caplog) == [
        "queue default: the archive follows the rule of another server, 3 tasks, 7776000 s, then trim; "
        "that of this one is 1 tasks, 7776000 s, then spill"
    ]


def test_a_rule_that_is_none_of_ours_is_read_as_asynqs(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.db.hset(keys.archive_rule(QUEUE), mapping={"max": "many", "ttl": "-1", "full": "burn"})
        assert await bench.commands.run(read_archive_rule(QUEUE)) == ArchiveRule()

    on_bench(db, url, test)
