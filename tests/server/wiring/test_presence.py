"""What inspectors see of a server: asynq's fields, each running task by its id, times on the wall clock."""

import os
import re
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fastq
from fastq.broker.operations.presence import ServerIdentity
from fastq.pool.main.protocol import ChildCensus, PoolCensus, Running, Sort, Submission
from fastq.server.base.config import ServerConfig
from fastq.server.inflight.tasks import InFlightTasks
from fastq.server.wiring.presence import ServerPresence, ServerStatus, new_identity
from fastq.wire.codec import view_task_message
from fastq.wire.messages import ChildInfo, Places, ServerInfoMessage, WorkerInfo
from fastq.wire.notice import ServerNotice
from fastq.wire.records import decode_server_info, decode_worker_info
from fastq.worker.shared.description import AppDescription
from tests.broker.harness import NOW_S, message
from tests.manual_clock import ManualClock

ME = ServerIdentity("host", 7, "3c7b2c4e")
IDLE = PoolCensus({}, 0, 0, (0, 0), {}, (0, 0), ())
CONFIG = ServerConfig(concurrency=4, queues={"critical": 6, "default": 3}, strict_priority=True)


def running(task_id: str, *, started_s: float = 0.0, deadline_s: float = 0.0, **fields: Any) -> Running:
    """Let a task be in a handler; times are monotonic."""
    data = fields.pop("data", None) or message(task_id, queue="in-message", **fields)
    task = InFlightTasks().add("critical", view_task_message(data), 0.0)
    return Running(Submission(task, data), 99, int(started_s * 1e9), int(deadline_s * 1e9))


def show(*tasks: Running, clock: ManualClock | None = None) -> tuple[ServerInfoMessage, dict[str, WorkerInfo]]:
    presence = ServerPresence(ME, CONFIG, lambda: list(tasks), lambda: IDLE, clock or ManualClock(NOW_S))
    info, workers, _ = presence()
    return decode_server_info(info), {task_id: decode_worker_info(data) for task_id, data in workers.items()}


def test_tasks_that_began_together_are_told_to_have_begun_at_one_time() -> None:
    class Slewed(ManualClock):
        def unix_ns(self) -> int:
            self.jump(1e-6)
            return super().unix_ns()

    _, workers = show(running("a", started_s=5), running("b", started_s=5), clock=Slewed(NOW_S))
    assert workers["a"].start_time == workers["b"].start_time


def test_a_server_shows_its_settings_as_they_were_given() -> None:
    info, workers = show()
    assert workers == {}
    assert info.start_time is not None
    assert abs(info.start_time - datetime.now(UTC)) < timedelta(seconds=60)
    assert info == ServerInfoMessage(
        host="host",
        pid=7,
        server_id="3c7b2c4e",
        concurrency=4,
        queues={"critical": 6, "default": 3},
        strict_priority=True,
        status="active",
        start_time=info.start_time,
        active_worker_count=0,
    )


def test_a_server_shows_each_task_in_a_handler() -> None:
    clock = ManualClock(NOW_S)
    clock.advance(100)
    now = datetime.fromtimestamp(NOW_S + 100, UTC)
    tasks = running("a", started_s=97.5, deadline_s=160, payload=b"\x00p"), running("b", started_s=100)
    info, workers = show(*tasks, clock=clock)
    assert info.active_worker_count == 2
    assert workers.keys() == {"a", "b"}
    assert workers["a"] == WorkerInfo(
        host="host",
        pid=7,
        server_id="3c7b2c4e",
        task_id="a",
        task_type="t",
        task_payload=b"\x00p",
        queue="critical",
        start_time=now - timedelta(seconds=2.5),
        deadline=now + timedelta(seconds=60),
    )
    assert workers["b"].start_time == now
    assert workers["b"].deadline is None


def test_large_payloads_are_shown_in_part() -> None:
    """They go to Redis again with each beat: 4 kB of each, and a megabyte of all."""
    payload = bytes(range(256)) * 1000
    one, two = running("a", payload=payload), running("b", payload=payload[:100])
    _, workers = show(one, two)
    assert workers["a"].task_payload == payload[:4096]
    assert workers["b"].task_payload == payload[:100]
    info, workers = show(*(running(str(number), payload=payload) for number in range(1000)))
    assert info.active_worker_count == 1000
    assert {worker.task_payload for worker in workers.values()} == {payload[:1000]}


def test_a_payload_is_read_at_the_first_beat_only() -> None:
    tasks = [running("a", payload=b"p" * 10_000)]
    presence = ServerPresence(ME, CONFIG, lambda: tasks, lambda: IDLE, ManualClock(NOW_S))
    first = presence()[1]
    kept = dict(presence._payloads)
    assert presence()[1] == first
    assert [id(payload) for payload in presence._payloads.values()] == [id(payload) for payload in kept.values()]
    tasks.clear()
    assert presence()[1] == {}
    assert presence._payloads == {}


def test_a_wall_clock_that_was_set_is_followed() -> None:
    clock = ManualClock(NOW_S)
    clock.advance(10)
    clock.jump(3600)
    _, workers = show(running("a", started_s=10), clock=clock)
    assert workers["a"].start_time == datetime.fromtimestamp(NOW_S + 10 + 3600, UTC)


def test_a_task_that_cannot_be_shown_hides_no_other() -> None:
    bad = message("bad", error_msg="boom").replace(b"boom", b"b\xff\xffm")
    foreign = Running(Submission("a hook's", b""), 99, 0, 0)
    info, workers = show(running("bad", data=bad), foreign, running("good"))
    assert workers.keys() == {"good"}
    assert info.active_worker_count == 1


def test_the_status_is_what_the_server_says_it_is() -> None:
    presence = ServerPresence(ME, CONFIG, list, lambda: IDLE, ManualClock(NOW_S))
    for status in ServerStatus:
        presence.status = status
        assert decode_server_info(presence().info).status == status.value
    assert [status.value for status in ServerStatus] == ["new", "active", "stopped", "closed"]


def test_as_many_run_at_once_as_children_have_rows_for_the_sorts_of_the_app() -> None:
    config = ServerConfig(concurrency=2, threads=50, async_concurrency=10)
    presence = ServerPresence(ME, config, list, lambda: IDLE, ManualClock(NOW_S))
    found = []
    plain, coroutine, thread = Sort.PLAIN, Sort.ASYNC, Sort.THREADED
    for patterns in ({"a": plain}, {"a": thread, "b": plain}, {"a": coroutine}, {"a": coroutine, "b": thread}):
        presence.serve(AppDescription(patterns))
        found.append(decode_server_info(presence().info).concurrency)
    assert found == [2, 100, 20, 120]


def test_each_server_has_an_identity_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = new_identity(), new_identity()
    assert (one.host, one.pid) == (socket.gethostname(), os.getpid())
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", one.server_id)
    assert one.server_id != two.server_id

    def fail() -> str:
        raise OSError("no name")

    monkeypatch.setattr(socket, "gethostname", fail)
    assert new_identity().host == "unknown-host"


def test_a_server_tells_its_queues_and_patterns() -> None:
    presence = ServerPresence(ME, CONFIG, list, lambda: IDLE, ManualClock(NOW_S))
    presence.serve(AppDescription({"email:": Sort.PLAIN, "a": Sort.PLAIN}))
    notice = ServerNotice.decode(presence().notice)
    places = (Places("process", 0, 4),)
    assert notice == ServerNotice(fastq.__version__, ("critical", "default"), ("email:", "a"), places=places)


def test_a_server_tells_its_children_with_their_tasks() -> None:
    clock = ManualClock(NOW_S)
    clock.advance(100)
    each = (
        ChildCensus(99, "busy", 40.0, 1 << 20),
        ChildCensus(98, "idle", 90.5, 0),
        ChildCensus(0, "starting", 99.0, 0),  # not forked yet
    )
    tasks = [running("a"), running("b")]
    presence = ServerPresence(ME, CONFIG, lambda: tasks, lambda: IDLE._replace(each=each), clock)
    began = datetime.fromtimestamp(NOW_S, UTC)
    assert ServerNotice.decode(presence().notice).children == (
        ChildInfo(99, "busy", began + timedelta(seconds=40), 1 << 20, ("a", "b")),
        ChildInfo(98, "idle", began + timedelta(seconds=90)),
    )


def test_a_server_tells_how_many_places_of_each_kind_are_busy() -> None:
    tasks: list[Running] = []
    for task in (running("a"), running("b"), running("c")):
        submission = Submission(task.submission.key, task.submission.data, is_async=bool(tasks))
        submission.is_threaded = len(tasks) == 1
        tasks.append(Running(submission, 99, 0, 0))
    presence = ServerPresence(ME, CONFIG, lambda: tasks, lambda: IDLE, ManualClock(NOW_S))
    assert ServerNotice.decode(presence().notice).places == ()
    presence.places = {Sort.THREADED: 16, Sort.ASYNC: 400}
    assert ServerNotice.decode(presence().notice).places == (Places("thread", 1, 16), Places("coroutine", 1, 400))
