"""What inspectors do beyond single calls: wait for queues and servers, follow, move, write down, examine."""

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from redis import Redis

from fastq import BadLinesError, QueueNotFoundError, QueuePausedError, ServerNotListeningError, TaskFilter, TaskState
from fastq.inspector import Drain, ImportReport, Inspector, MovePlan
from fastq.wire import keys
from tests.broker.harness import NOW_S
from tests.cli.keyspaces import everything
from tests.inspector.harness import Ask, Seeded
from tests.waiting import PATIENCE_S

FAR_S = 4_000_000_000


class EnoughError(Exception):
    pass


# Drain --------------------------------------------------------------------------------------------------------------


def test_a_queue_is_waited_for_until_nothing_is_left(ask: Ask, queue: Seeded, db: Any) -> None:
    queue.pend("a", "b")
    looks: list[Drain] = []

    def work(now: Drain) -> None:
        """Be the server that does a task between two looks."""
        looks.append(now)
        db.lpop(queue.key("pending"))

    end = ask("drain_queue", "default", progress=work, pause_after=True)
    assert (end.empty, end.queue, dict(end.left)) == (True, "default", {"active": 0})
    assert sum(looks[0].left.values()) == 2
    assert db.exists(keys.paused("default"))


def test_a_task_behind_a_run_is_waited_for(ask: Ask, queue: Seeded, db: Any) -> None:
    queue.pend()
    db.hset(keys.again("default"), "sync:1", b"::message")  # the run was on a Go server, and is over
    looks: list[int] = []

    def put(now: Drain) -> None:
        """Be the server that enqueues it, and then does it."""
        looks.append(now.left[TaskState.PENDING])
        if db.hdel(keys.again("default"), "sync:1"):
            db.lpush(keys.pending("default"), "sync:1")
        elif looks[-1]:
            db.delete(keys.pending("default"))

    assert ask("drain_queue", "default", progress=put).empty
    assert looks[0] == 1
    assert looks[-1] == 0


def test_a_wait_ends_with_its_time_and_says_what_is_left(ask: Ask, queue: Seeded) -> None:
    queue.pend("a")
    queue.add("scheduled", {"s": NOW_S})
    end = ask("drain_queue", "default", timeout=0.0)
    assert (end.empty, end.left["pending"], end.processed, end.paused) == (False, 1, 0, False)
    assert ask("drain_queue", "default", states=["active"]).empty
    assert not ask("drain_queue", "default", states="scheduled", timeout=timedelta(milliseconds=10)).empty


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, "timeout must not be negative: -1"), (float("nan"), "timeout must be finite"), ("5", "timedelta or seconds")],
)
def test_a_time_to_wait_that_is_none_is_refused_at_once(ask: Ask, queue: Seeded, timeout: Any, error: str) -> None:
    queue.pend()
    with pytest.raises((TypeError, ValueError), match=error):
        ask("drain_queue", "default", timeout=timeout)


def test_a_wait_that_cannot_end_is_an_error(ask: Ask, queue: Seeded, db: Any) -> None:
    queue.pend("a")
    db.set(keys.paused("default"), 1)
    with pytest.raises(QueuePausedError, match=r"queue is paused, with 1 pending in it \(queue='default'\)") as caught:
        ask("drain_queue", "default")
    assert caught.value.sizes == {"pending": 1}
    with pytest.raises(QueueNotFoundError):
        ask("drain_queue", "other")


def test_a_wait_is_ended_by_what_progress_raises(ask: Ask, queue: Seeded) -> None:
    queue.pend("a")

    def stop(now: Drain) -> None:
        raise EnoughError(sum(now.left.values()))

    with pytest.raises(EnoughError, match="1"):
        ask("drain_queue", "default", progress=stop)


# Follow -------------------------------------------------------------------------------------------------------------


def test_events_are_given_as_they_come(url: str, queue: Seeded) -> None:
    with Inspector(url) as inspector:
        waits = 0

        def happen(progress: object) -> None:
            nonlocal waits
            waits += 1
            queue.pend(f"t{waits}")

        events = inspector.follow("default", interval=0.001, progress=happen)
        assert [(event.name, event.id) for event in islice(events, 2)] == [("enqueued", "t1"), ("enqueued", "t2")]
        with pytest.raises(ValueError, match="interval must be more than 0 seconds: 0"):
            inspector.follow("default", interval=0)


# Servers ------------------------------------------------------------------------------------------------------------


def test_a_server_that_does_not_listen_cannot_be_told(ask: Ask, db: Redis) -> None:
    for method in ("stop_server", "quiet_server"):
        with pytest.raises(ServerNotListeningError, match="server_id='it'"):
            ask(method, "it")
    assert ask("wait_for_server", "it", "stopping") is None
    with pytest.raises(ValueError, match="status must be one of quiet, stopping, not 'gone'"):
        ask("wait_for_server", "it", "gone")
    with pytest.raises(ValueError, match="timeout must be finite, not nan"):
        ask("wait_for_server", "it", "quiet", timeout=float("nan"))
    assert ask("wait_for_server", "it", "quiet", timeout=timedelta(seconds=1)) is None


def test_a_server_that_listens_is_told(ask: Ask, db: Any) -> None:
    with db.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(keys.control_channel("it"))
        heard.get_message(timeout=PATIENCE_S)
        orders = []
        for method in ("stop_server", "quiet_server"):
            ask(method, "it")
            message = None
            while message is None:
                message = heard.get_message(timeout=PATIENCE_S)
            orders.append(json.loads(message["data"])["do"])
    assert orders == ["stop", "quiet"]


# Move ---------------------------------------------------------------------------------------------------------------


def test_tasks_that_a_filter_leaves_are_moved(ask: Ask, queue: Seeded, db: Any) -> None:
    queue.put("m", "pending", type="mail:send")
    queue.put("v", "pending", type="video")
    db.lpush(queue.key("pending"), "m", "v")
    queue.add("retry", {"r": FAR_S}, type="mail:send")
    moved = ask("move_tasks", "default", "other", where=TaskFilter(type="mail:*"))
    assert (moved.count, moved.id_conflicts, moved.lock_conflicts, moved.failed) == (2, 0, 0, [])
    assert queue.states() == {"v": "pending"}
    assert Seeded(db, "other").states() == {"m": "pending", "r": "retry"}


def test_a_planned_move_tells_what_had_to_stay(ask: Ask, queue: Seeded, db: Any) -> None:
    queue.pend("a", "b")
    other = Seeded(db, "other")
    other.pend("a")
    db.hset(keys.archive_rule("other"), "max", 1)
    queue.add("archived", {"d": NOW_S})
    other.add("archived", {"e": NOW_S})
    plan: MovePlan = ask("plan_move", "default", "other", states=["pending", "archived"])
    assert (plan.job.total, plan.parked, plan.archived, plan.archive.most) == (3, 0, 2, 1)
    assert ask("carry_out", plan.job).done == 2
    assert (plan.moved.count, plan.moved.id_conflicts) == (2, 1)
    assert plan.moved.failed == [("a", "its id exists there already")]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("default", "default"), "tasks cannot be moved from 'default' to itself"),
        (("default", " "), "queue"),
        (("default", "x}y"), "queue must not contain '}', .*: 'x}y'"),
        (("default", "other", ["active"]), "not 'active'"),
    ],
)
def test_moves_that_mean_nothing_are_refused(ask: Ask, queue: Seeded, args: Any, error: str) -> None:
    named = {"states": args[2]} if len(args) > 2 else {}
    with pytest.raises(ValueError, match=error):
        ask("move_tasks", *args[:2], **named)
    with pytest.raises(QueueNotFoundError):
        ask("move_tasks", "nowhere", "other")


# Export and import --------------------------------------------------------------------------------------------------


def test_what_was_exported_is_imported_as_it_was(ask: Ask, queue: Seeded, db: Any) -> None:
    queue.pend("a", "b")
    queue.add("retry", {"r": FAR_S}, error_msg="no")
    queue.add("completed", {"c": FAR_S})
    queue.group("g", {"x": 1})
    before = everything(db)
    lines = ask("export_tasks", "default")
    assert len(lines) == 5
    db.flushall()
    trial = ask("check_import", lines)
    assert (trial.count, trial.checked, everything(db)) == (5, 5, {})
    report: ImportReport = ask("import_tasks", iter(lines))
    assert (report.count, report.lines, report.checked) == (5, 5, 0)
    assert everything(db) == before
    again = ask("import_tasks", lines)
    assert (again.count, again.exists, again.conflicts[0]) == (0, 5, {"line": 1, "queue": "default", "id": "x"})


def test_an_export_takes_states_a_group_and_a_filter(ask: Ask, queue: Seeded) -> None:
    queue.pend("a")
    queue.group("g", {"x": 1})
    queue.group("h", {"y": 1})
    queue.add("retry", {"r1": FAR_S}, error_msg="slow")
    queue.add("retry", {"r2": FAR_S}, error_msg="wrong")

    def ids(**named: Any) -> list[str]:
        return [json.loads(line)["id"] for line in ask("export_tasks", "default", **named)]

    assert ids(states=["pending"]) == ["a"]
    assert ids(states=["aggregating"]) == ["x", "y"]
    assert ids(states=["aggregating"], group="h") == ["y"]
    assert ids(where=TaskFilter(error="slow")) == ["r1"]
    for named, error in (({"group": "g"}, "goes with the state aggregating only"), ({"states": ["x"]}, "not 'x'")):
        with pytest.raises(ValueError, match=error):
            ask("export_tasks", "default", **named)


def test_bad_lines_of_a_list_are_found_before_anything_is_put(ask: Ask, queue: Seeded, db: Any) -> None:
    queue.pend("a", "b")
    lines = ask("export_tasks", "default")
    db.flushall()
    with pytest.raises(BadLinesError, match="2 of 4 lines are bad") as caught:
        ask("import_tasks", [*lines, "{", "[]"])
    assert [bad["line"] for bad in caught.value.report.bad_lines] == [3, 4]
    with pytest.raises(BadLinesError, match="line 1: not JSON"):
        ask("import_tasks", iter(["{"]))
    assert everything(db) == {}
    report = ask("import_tasks", [*lines, "{"], skip_bad=True, queue="other")
    assert (report.count, report.bad) == (2, 1)
    assert Seeded(db, "other").states() == {"a": "pending", "b": "pending"}


def test_lines_as_one_text_are_refused(ask: Ask, queue: Seeded) -> None:
    queue.pend("a")
    (line,) = ask("export_tasks", "default")
    for method in ("import_tasks", "check_import"):
        for text in (line, line.encode()):
            with pytest.raises(TypeError, match=r"lines must be an iterable of lines; use text\.splitlines\(\)"):
                ask(method, text)


def test_nothing_is_imported_into_a_queue_that_clients_refuse(ask: Ask, queue: Seeded, db: Any) -> None:
    queue.pend("a")
    lines = ask("export_tasks", "default")
    db.flushall()
    with pytest.raises(ValueError, match=r"queue must not contain '}'.*: 'x}y'"):
        ask("import_tasks", lines, queue="x}y")
    Seeded(db, "x}y").pend("a")
    odd = ask("export_tasks", "x}y")
    db.flushall()
    with pytest.raises(BadLinesError, match="line 1: queue must not contain '}'"):
        ask("import_tasks", odd)
    assert everything(db) == {}
    assert ask("import_tasks", odd, queue="other").count == 1


def test_an_import_is_ended_between_two_pieces(ask: Ask, queue: Seeded, db: Any) -> None:
    queue.pend(*(f"t{n:03}" for n in range(450)))
    lines = ask("export_tasks", "default")
    db.flushall()

    def stop(report: ImportReport) -> None:
        if report.lines == 200:
            raise EnoughError

    with pytest.raises(EnoughError):
        ask("import_tasks", iter(lines), progress=stop)
    assert db.llen(keys.pending("default")) == 200
    assert (ask("import_tasks", lines).exists, db.llen(keys.pending("default"))) == (200, 450)


def test_lines_may_come_as_they_are_read(url: str, queue: Seeded, db: Any) -> None:
    queue.pend("a")
    with Inspector(url) as inspector:

        def lines() -> Iterator[str]:
            for line in inspector.export_tasks("default"):
                yield f"{line}\n"

        assert inspector.import_tasks(lines(), queue="copy").count == 1
    assert Seeded(db, "copy").states() == {"a": "pending"}


# The doctor ---------------------------------------------------------------------------------------------------------


def test_what_is_found_wrong_is_repaired(ask: Ask, queue: Seeded, db: Any) -> None:
    db.lpush(queue.key("pending"), "dangling")
    seen: list[int] = []
    report = ask("examine", progress=lambda now: seen.append(now.done))
    assert seen
    (repair,) = report.repairs
    assert (repair.queue, repair.count) == ("default", 1)
    assert ask("repair", repair) == 1
    assert db.llen(queue.key("pending")) == 0
    assert ask("examine", ["default"], limit=None).repairs == []
    with pytest.raises(QueueNotFoundError):
        ask("examine", ["other"])
    with pytest.raises(ValueError, match="limit must be from 1"):
        ask("examine", limit=0)
