"""The doctor's round: each defect is seen, and that alone; what can be repaired is, and is not seen again."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from fastq import Client, QueueNotFoundError, Task
from fastq.broker.operation import Flow, Operation
from fastq.broker.operations.archive_rule import ArchiveRule, set_archive_rule
from fastq.broker.operations.signs import Takeover, note_takeover
from fastq.broker.scripts import SCRIPTS
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import open_broker
from fastq.common.states import TaskState
from fastq.inspector.doctor.examination import Order, Report, examine
from fastq.inspector.doctor.finding import Finding, Level
from fastq.wire import keys
from tests.inspector.doctor.harness import DEFECTS, break_it, put_behind, sound
from tests.inspector.harness import Seeded
from tests.inspector.test_processes import publish

ALWAYS = {"persistence", "served", "slow commands"}
"""What a private Redis without servers, on a busy machine, has, too."""


@pytest.fixture
def broker(url: str) -> Iterator[BlockingBroker]:
    broker = open_broker(url)
    yield broker
    broker.close()


def look(broker: BlockingBroker, **order: Any) -> Report:
    return broker.drive(examine(Order(time.time_ns, **order)))


def amiss(report: Report) -> list[Finding]:
    """Return what is not in order, beyond what a test's Redis always has."""
    return [finding for finding in report.findings if finding.level is not Level.OK and finding.check not in ALWAYS]


def test_nothing_is_wrong_with_an_empty_redis(broker: BlockingBroker, db: Redis) -> None:
    report = look(broker)
    assert amiss(report) == []
    assert (report.repairs, report.of_level(Level.PROBLEM), report.tasks) == ([], [], 0)


def test_what_was_taken_lately_from_dead_servers_is_told(broker: BlockingBroker, db: Redis) -> None:
    now_s = time.time()
    for at_s, tasks in ((now_s - 7200, 9), (now_s - 60, 2), (now_s - 5, 3)):
        takeover = Takeover(at_s, "b:2:y", "a:1:x", "its process has ended", "default", tasks)
        for operation in note_takeover(takeover):
            broker.run(operation)
    (finding,) = (one for one in look(broker).findings if one.check == "takeovers")
    assert finding.level is Level.WARNING
    assert finding.seen == "5 tasks were taken within the last hour, from servers that were gone: 1"
    assert finding.examples[0] == "b:2:y took 3 tasks of queue default from a:1:x: its process has ended"
    assert len(finding.examples) == 2


def test_nothing_is_wrong_with_tasks_of_every_state(broker: BlockingBroker, db: Redis) -> None:
    sound(db)
    sound(db, "q{1}*")
    report = look(broker)
    assert amiss(report) == []
    assert report.repairs == []
    assert report.tasks_looked_at == 22


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_seen_repaired_and_not_seen_again(name: str, broker: BlockingBroker, db: Redis) -> None:
    defect = break_it(db, name)
    before = dump(db)
    report = look(broker)
    assert dump(db) == before, "looking changes nothing"
    (found,) = [finding for finding in amiss(report) if finding.level is not Level.UNSEEN]
    assert (found.check, found.level.value, found.seen) == (defect.check, defect.level, defect.seen)
    assert found.why
    assert found.advice
    if defect.example:
        assert any(example.startswith(defect.example) for example in found.examples)
    if not defect.is_repaired:
        assert report.repairs == []
        return
    (repair,) = report.repairs
    assert broker.drive(repair.carry_out()) == found.count
    assert [finding for finding in amiss(look(broker)) if finding.check == defect.check] == []
    assert broker.drive(repair.carry_out()) == 0, "there is nothing left to repair"


def dump(db: Any) -> dict[bytes, bytes]:
    return {key: db.dump(key) for key in db.scan_iter(count=1000)}


def repair_all(broker: BlockingBroker) -> None:
    for repair in look(broker).repairs:
        broker.drive(repair.carry_out())


def test_dropping_ids_leaves_the_others_in_their_order(broker: BlockingBroker, db: Redis) -> None:
    queue = Seeded(db)
    queue.pend(*(f"p{n}" for n in range(1200)))
    for n in range(0, 1200, 7):
        db.delete(keys.task("default", f"p{n}"))
    repair_all(broker)
    assert queue.places()["pending"] == [f"p{n}" for n in reversed(range(1200)) if n % 7]


def test_what_is_repaired_in_active_loses_its_lease_too(broker: BlockingBroker, db: Redis) -> None:
    break_it(db, "dangling in active")
    repair_all(broker)
    assert Seeded(db).places()["active"] == Seeded(db).places()["lease"] == ["a1"]


def test_a_lost_task_is_archived_and_a_completed_one_kept(broker: BlockingBroker, db: Redis) -> None:
    queue = Seeded(db)
    queue.put("lost", "retry", payload=b"p")
    queue.put("done", "completed")
    repair_all(broker)
    assert queue.places() == {"archived": ["lost"], "completed": ["done"]}
    assert queue.states() == {"lost": "archived", "done": "completed"}
    assert queue.message("lost").payload == b"p"
    assert time.time() < queue.scores("completed")["done"] < time.time() + 100_000


def test_what_is_between_two_queues_is_left_to_the_move(broker: BlockingBroker, db: Redis) -> None:
    queue = sound(db)
    queue.put("parked", "moving")
    queue.db.zadd(keys.moving("default"), {"parked": 1})
    report = look(broker)
    (found,) = amiss(report)
    assert (found.check, found.level, found.examples) == ("tasks between queues", Level.WARNING, ("parked",))
    assert report.repairs == []


def test_no_task_is_put_into_an_archive_that_would_soon_delete_it(broker: BlockingBroker, db: Redis) -> None:
    queue = Seeded(db)
    broker.run(set_archive_rule("default", ArchiveRule(3)))
    queue.add("archived", {"a1": 4e9, "a2": 4e9})
    for number in range(4):
        queue.put(f"lost{number}", "retry")
    (repair,) = look(broker).repairs
    assert broker.drive(repair.carry_out()) == 1
    assert len(queue.places()["archived"]) == 3
    (found,) = (each for each in amiss(look(broker)) if each.check != "archive")
    assert (found.check, found.count) == ("tasks in no list", 3)


@pytest.fixture
def _long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a list of more than ten ids be too long to be searched."""
    monkeypatch.setattr("fastq.broker.inspect.examine.MAX_SEARCHED", 10)
    monkeypatch.setattr("fastq.inspector.doctor.pending.MAX_SEARCHED", 10)


@pytest.mark.usefixtures("_long")
def test_lost_tasks_are_told_from_those_in_a_long_list(broker: BlockingBroker, db: Redis) -> None:
    queue = Seeded(db)
    queue.pend(*(f"p{n}" for n in range(300)))
    for task_id, state in (("lost1", "pending"), ("lost2", "retry")):
        queue.put(task_id, state)
        db.hset(keys.task("default", task_id), "pending_since", 1)
    report = look(broker)
    (found,) = amiss(report)
    assert (found.check, found.count) == ("tasks in no list", 2)
    (repair,) = report.repairs
    db.lpush(keys.pending("default"), "lost2")  # somebody else repaired it
    assert broker.drive(repair.carry_out()) == 1
    assert queue.places()["archived"] == ["lost1"]
    assert amiss(look(broker))[0].seen == "1 in pending", "what somebody else did says that it is in retry"


@pytest.mark.usefixtures("_long")
def test_what_comes_into_a_long_list_while_it_is_read_is_not_lost(broker: BlockingBroker, db: Redis, url: str) -> None:
    queue = Seeded(db)
    queue.pend(*(f"p{n}" for n in range(300)))
    with Client(url) as client:

        def meddled(flow: Flow[Report]) -> Flow[Report]:
            """Run the flow, but enqueue some tasks each time that it has read ids of the list."""
            step = next(flow)
            while True:
                result = yield step
                if isinstance(step, Operation) and step.name == "LRANGE":
                    client.enqueue_many([Task("t") for _ in range(20)])
                try:
                    step = flow.send(result)
                except StopIteration as end:
                    report: Report = end.value
                    return report

        assert amiss(broker.drive(meddled(examine(Order(time.time_ns))))) == []
    assert queue.db.llen(keys.pending("default")) > 300


def test_a_half_lost_task_is_pending_again(broker: BlockingBroker, db: Redis) -> None:
    break_it(db, "inactive")
    repair_all(broker)
    assert Seeded(db).states()["half"] == "pending"


def test_a_set_that_is_given_back_is_its_groups_again(broker: BlockingBroker, db: Redis) -> None:
    break_it(db, "overdue")
    repair_all(broker)
    assert sorted(Seeded(db).scores("g:g")) == ["g1", "g2", "g3"]


def test_the_rule_that_a_server_writes_before_the_first_task_is_no_remains(
    broker: BlockingBroker, db: Redis, url: str
) -> None:
    rule = set_archive_rule("low", ArchiveRule(most=5))
    broker.run(rule)
    assert [finding.check for finding in amiss(look(broker))] == ["remains of queues"]
    publish(db, "x")  # it serves low and high
    assert [finding for finding in amiss(look(broker)) if finding.check == "remains of queues"] == []


def test_a_limit_before_the_first_task_is_not_to_be_deleted_with_its_queue(broker: BlockingBroker, db: Redis) -> None:
    db.hset(keys.limits("default"), "*", "2:0:1:1")
    (found,) = amiss(look(broker))
    assert (found.check, found.seen) == ("limits of unlisted queues", "1 in limits")
    assert "queue rm" not in found.advice
    assert "lane limit --remove" in found.advice


def follow_ups(report: Report) -> list[int | None]:
    return [finding.count for finding in amiss(report) if finding.check == "follow-ups without a run"]


def test_many_follow_ups_are_all_found_and_enqueued_and_a_part_is_called_so(broker: BlockingBroker, db: Redis) -> None:
    put_behind(sound(db), *(f"f{n}" for n in range(1000)))
    part = look(broker, limit=300)
    assert part.is_partial
    (count,) = follow_ups(part)
    assert count is not None
    assert 300 <= count < 1000
    report = look(broker)
    assert (report.is_partial, follow_ups(report)) == (False, [1000])
    (repair,) = report.repairs
    assert broker.drive(repair.carry_out()) == 1000
    assert follow_ups(look(broker)) == []


def test_follow_ups_of_more_bytes_than_a_call_puts_are_all_enqueued(broker: BlockingBroker, db: Redis) -> None:
    put_behind(sound(db), *(f"f{n}" for n in range(7)), payload=bytes(200_000))
    (repair,) = look(broker).repairs
    assert (broker.drive(repair.carry_out()), db.exists(keys.again("default"))) == (7, 0)


def test_a_follow_up_keeps_an_id_that_is_no_text(broker: BlockingBroker, db: Redis) -> None:
    queue, task_id = sound(db), b"\xff".decode(errors="surrogateescape")
    put_behind(queue, task_id)
    task = keys.task("default", "").encode() + b"\xff"
    db.hset(task, "state", "active")
    assert follow_ups(look(broker)) == []
    db.delete(task)
    (repair,) = look(broker).repairs
    assert (broker.drive(repair.carry_out()), db.hget(task, "state")) == (1, b"pending")


def test_a_group_without_tasks_is_listed_no_more(broker: BlockingBroker, db: Redis) -> None:
    queue = Seeded(db)
    queue.group("g", {"g1": 1.0})
    db.delete(keys.task("default", "g1"))
    repair_all(broker)
    assert queue.all_keys() == {keys.all_queues()}


def test_what_moves_between_two_looks_is_not_told(
    broker: BlockingBroker, db: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = sound(db)
    for name in ("dangling in pending", "lost, retry", "lock", "unleased", "unlisted"):
        DEFECTS[name].make(queue)

    pauses = []

    def undo(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            return  # to look once more whether a server serves the queue
        db.lrem(keys.pending("default"), 0, "dangling")
        db.lrem(keys.pending("default"), 0, "dangling2")
        db.zadd(queue.key("retry"), {"lost": 4e9})
        db.delete(keys.unique("default", "gone", b"x"))
        db.zadd(keys.lease("default"), {"bare": 4e9})
        db.sadd(keys.all_queues(), "hidden")
        DEFECTS["leftover"].make(queue)

    monkeypatch.setattr("fastq.broker.transport.blocking.time", SimpleNamespace(sleep=undo, monotonic=time.monotonic))
    assert amiss(look(broker)) == []


def test_a_repair_looks_again(broker: BlockingBroker, db: Any) -> None:
    queue = sound(db)
    for name in ("dangling in pending", "lost, retry", "lock", "unleased", "leftover"):
        DEFECTS[name].make(queue)
    report = look(broker)
    assert len(report.repairs) == 5
    for task_id in ("dangling", "dangling2", "nobody", "rest"):
        queue.put(task_id, "pending")
    db.lpush(keys.pending("default"), "nobody", "rest")
    db.zadd(queue.key("retry"), {"lost": 4e9})
    db.zadd(keys.lease("default"), {"bare": 4e9})
    before = dump(db)
    assert [broker.drive(repair.carry_out()) for repair in report.repairs] == [0] * 5
    assert dump(db) == before


def test_a_key_of_a_wrong_type_hides_nothing_of_other_queues(broker: BlockingBroker, db: Redis) -> None:
    break_it(db, "wrong type")
    other = Seeded(db, "low")
    DEFECTS["dangling in pending"].make(other)
    found = {(finding.check, finding.queue) for finding in amiss(look(broker))}
    assert found == {
        ("keys of a wrong type", "default"),
        ("queue", "default"),
        ("tasks", "default"),
        ("ids without task", "low"),
    }


def test_a_queue_alone_may_be_looked_at(broker: BlockingBroker, db: Redis) -> None:
    break_it(db, "dangling in pending")
    sound(db, "low")
    assert amiss(look(broker, queues=("low",))) == []
    assert len(amiss(look(broker, queues=("low", "default")))) == 1
    with pytest.raises(QueueNotFoundError, match="nosuch"):
        look(broker, queues=("nosuch",))


def test_a_limit_is_kept_and_said(broker: BlockingBroker, db: Redis, url: str) -> None:
    with Client(url) as client:
        client.enqueue_many([Task("t") for _ in range(6000)])
    told: list[tuple[int, int]] = []
    report = look(broker, limit=2000, note=lambda *counts: told.append(counts))
    assert (report.is_partial, report.tasks_looked_at, report.tasks) == (True, 2000, 6000)
    assert told == [(500, 6000), (1000, 6000), (1500, 6000), (2000, 6000)]
    assert amiss(report) == []
    whole = look(broker, limit=None)
    assert (whole.is_partial, whole.tasks_looked_at) == (False, 6000)
    assert amiss(whole) == []


def test_tasks_that_nobody_serves_are_told_of_unless_their_queue_is_paused(broker: BlockingBroker, db: Redis) -> None:
    def unserved() -> list[str | None]:
        return [finding.queue for finding in look(broker).findings if finding.check == "served" and finding.queue]

    Seeded(db, "low").pend("p1")
    Seeded(db, "other").pend("p1", "p2")
    assert unserved() == ["low", "other"]
    publish(db, "x", status="stopped")  # it has low and high, and was told to be quiet
    assert unserved() == ["low", "other"]
    publish(db, "x")
    assert unserved() == ["other"]
    db.set(keys.paused("other"), int(time.time()))
    assert unserved() == []


def test_tasks_that_are_not_due_need_a_server_too(broker: BlockingBroker, db: Redis) -> None:
    def found() -> list[tuple[str, Level, str]]:
        checks = ("served", "task types")
        return [(one.check, one.level, one.seen) for one in look(broker).findings if one.check in checks]

    nobody = ("task types", Level.OK, "queues: 0 of 1; no server is there whose handlers could be compared")
    seeded = Seeded(db, "low")
    seeded.add(TaskState.SCHEDULED, {"s1": 4_000_000_000})
    assert found() == [("served", Level.WARNING, "1 scheduled, and no server is running"), nobody]
    seeded.pend("p1")
    assert found() == [("served", Level.PROBLEM, "1 pending, 1 scheduled, and no server is running"), nobody]
    db.flushdb()
    assert found()[0] == ("served", Level.OK, "queues: 0, no server runs, and no task waits")


def test_a_paused_queue_with_many_tasks_and_a_full_archive_are_told_of(broker: BlockingBroker, db: Redis) -> None:
    queue = Seeded(db)
    queue.pend(*(f"p{n}" for n in range(1000)))
    queue.add("archived", {f"a{n}": 4e9 for n in range(9000)})
    db.set(keys.paused("default"), int(time.time()) - 7200)
    paused, archive = amiss(look(broker))
    assert (paused.check, paused.level, paused.seen) == ("paused", Level.WARNING, "1000 pending, paused for 2.0 h")
    assert (archive.check, archive.level, archive.seen) == ("archive", Level.WARNING, "9000 of 10000 tasks")


def test_a_server_whose_clock_is_wrong_is_told_of(
    broker: BlockingBroker, db: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.inspector.doctor.examination.RENEWED_S", 0.0)
    publish(db, "x")
    (listed,) = db.zrange(keys.all_servers(), 0, -1, withscores=True)
    ends_s = int(listed[1])
    db.expireat(keys.server_info("h", 7, "x"), ends_s)
    assert amiss(look(broker)) == []
    db.zadd(keys.all_servers(), {keys.server_info("h", 7, "x"): ends_s + 60})
    (found,) = amiss(look(broker))
    assert (found.check, found.level, found.seen) == ("server clocks", Level.PROBLEM, "1 of 1 differ from Redis' clock")
    assert found.examples == ("h:7: 60 s ahead",)


def test_a_clock_of_ours_that_is_wrong_is_told_of(broker: BlockingBroker, db: Redis) -> None:
    sound(db)
    report = broker.drive(examine(Order(lambda: time.time_ns() + 30 * 10**9)))
    (found,) = amiss(report)
    assert (found.check, found.level) == ("clock", Level.PROBLEM)
    assert found.seen.startswith("Redis' is ")
    assert found.seen.endswith(" s behind this machine's")


def test_slow_scripts_are_told_of_by_their_names(broker: BlockingBroker, db: Any, url: str) -> None:
    db.slowlog_reset()
    db.script_load(SCRIPTS["enqueue_limited"].text)
    before = db.config_get("slowlog-log-slower-than")
    db.config_set("slowlog-log-slower-than", 0)
    try:
        with Client(url) as client:
            client.enqueue("t")
        db.set("another", "program's")
    finally:
        db.config_set("slowlog-log-slower-than", before["slowlog-log-slower-than"])
    (found,) = [finding for finding in look(broker).findings if finding.check == "slow commands"]
    db.slowlog_reset()
    assert found.level is Level.WARNING
    assert "EVALSHA enqueue_limited: 1" in found.examples
    assert not any(example.startswith("SET") for example in found.examples)
