"""The scheduler as people use it, on the machine's clock: what does not depend on times, and a program of its own."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import fastq
from fastq import (
    BrokerConnectionError,
    CronSpecError,
    Scheduler,
    SchedulerEntryNotFoundError,
    ServerClosedError,
    Task,
    TaskInfo,
)
from fastq.wire import keys
from fastq.wire.messages import SchedulerEntry
from fastq.wire.records import decode_scheduler_entry
from tests.waiting import PATIENCE_S, wait_until

ROOT = Path(fastq.__file__).parent.parent


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    scheduler = Scheduler(url)
    yield scheduler
    scheduler.shutdown()


def published(db: Redis) -> list[SchedulerEntry]:
    """Return what any scheduler has published."""
    members: Any = db.zrange(keys.all_schedulers(), 0, -1)
    read: Callable[..., Any] = db.lrange
    return [decode_scheduler_entry(data) for member in members for data in read(member, 0, -1)]


def left_keys(db: Redis) -> list[bytes]:
    """Return the keys of schedulers, without the counters, which outlive them."""
    found: Any = db.keys("asynq:scheduler*")
    return [key for key in found if key.decode() != keys.scheduler_ticks()]


def threads() -> set[threading.Thread]:
    """Return the threads of the schedulers that live now."""
    return {thread for thread in threading.enumerate() if thread.name == "fastq scheduler"}


def test_it_enqueues_on_its_thread_and_clears_up_at_the_end(url: str, db: Redis) -> None:
    heard: list[TaskInfo | None] = []
    enqueued = threading.Event()
    others = threads()

    def post_enqueue(info: TaskInfo | None, error: Exception | None) -> None:
        assert error is None
        heard.append(info)
        enqueued.set()

    with Scheduler(url, post_enqueue=post_enqueue) as scheduler:
        entry_id = scheduler.register("@every 1s", Task("tick", {"n": 1}), queue="low")
        assert enqueued.wait(PATIENCE_S)
        wait_until(lambda: [entry.id for entry in published(db)] == [entry_id])
        wait_until(lambda: db.exists(keys.scheduler_history(entry_id)))
    assert left_keys(db) == []
    assert heard[0] is not None
    assert db.lrange(keys.pending("low"), -1, -1) == [heard[0].id.encode()]
    assert threads() <= others


def test_entries_come_and_go_while_it_runs(scheduler: Scheduler, db: Redis) -> None:
    scheduler.start()
    first, second = scheduler.register("@daily", "a"), scheduler.register("@hourly", "b")
    wait_until(lambda: {entry.id for entry in published(db)} == {first, second})
    scheduler.unregister(first)
    wait_until(lambda: {entry.id for entry in published(db)} == {second})
    with pytest.raises(SchedulerEntryNotFoundError, match=f"scheduler entry not found .entry_id='{first}'") as caught:
        scheduler.unregister(first)
    assert caught.value.entry_id == first
    assert isinstance(caught.value, LookupError)


def test_one_that_is_started_long_after_registering_does_not_fire_at_once(scheduler: Scheduler, db: Redis) -> None:
    scheduler.register("@every 10h", "t", missed="all")
    (entry,) = scheduler._engine._followed()
    now = scheduler._engine.now()
    entry._begin(now - timedelta(hours=19))  # as if it had been registered then
    scheduler.start()
    wait_until(lambda: published(db))
    (listed,) = published(db)
    assert listed.next_enqueue_time is not None
    assert listed.next_enqueue_time >= now + timedelta(hours=9)
    assert db.keys(keys.pending("default")) == []


def test_the_zone_of_an_entry_is_a_part_of_what_is_published(url: str, db: Redis) -> None:
    with Scheduler(url, location="Asia/Tokyo") as scheduler:
        scheduler.register("0 6 * * *", "a")
        scheduler.register("0 6 * * *", "b", tz="Europe/Paris")
        scheduler.register("TZ=Asia/Kolkata 0 6 * * *", "c", tz="Europe/Paris")
        scheduler.register("0 6 * * *", "d", tz=timezone(timedelta(hours=2)))
        wait_until(lambda: len(published(db)) == 4)
        entries = {entry.task_type: entry for entry in published(db)}
    assert {name: entry.spec for name, entry in entries.items()} == {
        "a": "0 6 * * *",
        "b": "CRON_TZ=Europe/Paris 0 6 * * *",
        "c": "TZ=Asia/Kolkata 0 6 * * *",
        "d": "0 6 * * *",
    }
    hours = {name: entry.next_enqueue_time.hour for name, entry in entries.items() if entry.next_enqueue_time}
    assert hours["a"] == 21
    assert hours["b"] in (4, 5)
    assert hours["c"] == 0
    assert hours["d"] == 4


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ({"location": "Mars/Olympus"}, ValueError, "unknown time zone 'Mars/Olympus'"),
        ({"location": None}, TypeError, "a time zone must be a name"),
        ({"heartbeat_interval": 0}, ValueError, "heartbeat_interval must be at least 0.1 seconds: 0"),
        ({"heartbeat_interval": "10"}, TypeError, "heartbeat_interval must be a timedelta or seconds, not '10'"),
        ({"pre_enqueue": "hook"}, TypeError, "pre_enqueue must be callable, not 'hook'"),
        ({"post_enqueue": 5}, TypeError, "post_enqueue must be callable, not 5"),
        ({"redis": "http://x"}, ValueError, "scheme 'http'"),
    ],
)
def test_what_makes_no_scheduler_is_refused_by_name(how: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        Scheduler(**how)


def test_a_bad_spec_or_zone_registers_nothing(scheduler: Scheduler) -> None:
    with pytest.raises(CronSpecError, match="position 8: day of the week: '7' is outside 0-6"):
        scheduler.register("0 0 * * 7", "t")
    with pytest.raises(CronSpecError, match="position 0: minute: '60' is outside 0-59"):
        scheduler.register("60 * * * *", "t", tz="Europe/Paris")
    with pytest.raises(ValueError, match="unknown time zone 'Paris'"):
        scheduler.register("@daily", "t", tz="Paris")
    scheduler.register("@daily", "t", "name")
    with pytest.raises(ValueError, match="name 'name' is already taken by another entry"):
        scheduler.register("@daily", "t", "name")


def test_it_begins_once_and_ends_once(url: str) -> None:
    scheduler = Scheduler(url)
    scheduler.start()
    with pytest.raises(RuntimeError, match="already running"):
        scheduler.start()
    scheduler.shutdown()
    scheduler.shutdown()
    for again in (scheduler.start, lambda: scheduler.register("@daily", "t")):
        with pytest.raises(ServerClosedError, match="was shut down"):
            again()


def test_it_may_be_shut_down_without_having_begun(url: str) -> None:
    scheduler = Scheduler(url)
    scheduler.shutdown()
    with pytest.raises(ServerClosedError):
        scheduler.start()


def test_a_hook_may_shut_it_down(url: str, db: Redis) -> None:
    ended = threading.Event()
    others = threads()

    def post_enqueue(info: TaskInfo | None, error: Exception | None) -> None:
        ending.shutdown()
        ended.set()

    ending = Scheduler(url, post_enqueue=post_enqueue)
    ending.register("@every 1s", "t")
    ending.start()
    assert ended.wait(PATIENCE_S)
    wait_until(lambda: threads() <= others)
    assert left_keys(db) == []
    assert db.llen(keys.pending("default")) == 1


def test_a_shutdown_after_that_of_a_hook_waits_for_the_end_too(url: str, db: Redis) -> None:
    asked, goes_on, others = threading.Event(), threading.Event(), threads()

    def post_enqueue(info: TaskInfo | None, error: Exception | None) -> None:
        ending.shutdown()
        asked.set()
        goes_on.wait(PATIENCE_S)

    with Scheduler(url, post_enqueue=post_enqueue) as ending:
        ending.register("@every 1s", "t")
        assert asked.wait(PATIENCE_S)
        (thread,) = threads() - others
        join = thread.join

        def join_what_goes_on(timeout: float | None = None) -> None:
            goes_on.set()
            join(timeout)

        thread.join = join_what_goes_on  # type: ignore[method-assign]  # to know that it is waited for
    assert goes_on.is_set()
    assert not thread.is_alive()
    assert left_keys(db) == []


def test_ping_says_whether_redis_is_there(scheduler: Scheduler) -> None:
    scheduler.ping()
    away = Scheduler("unix:///nowhere/redis.sock")
    with pytest.raises(BrokerConnectionError):
        away.ping()
    away.shutdown()


def test_a_redis_that_is_given_is_not_closed(db: Redis) -> None:
    with Scheduler(db) as scheduler:
        scheduler.register("@daily", "t")
        wait_until(lambda: published(db))
    assert db.ping()


def test_run_is_for_the_main_thread_only(scheduler: Scheduler) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            scheduler.run()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "call it in the main thread" in str(errors[0])


def test_one_that_runs_already_is_not_disturbed_by_being_run(url: str, db: Redis) -> None:
    signums = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(signum) for signum in signums]
    with Scheduler(url) as scheduler:
        scheduler.register("@daily", "t")
        with pytest.raises(RuntimeError, match="already running"):
            scheduler.run()
        assert [signal.getsignal(signum) for signum in signums] == before
        wait_until(lambda: published(db))
    assert left_keys(db) == []


# A program of its own ----------------------------------------------------------------------------------------------


PROGRAM = """
import sys
from fastq import Scheduler
scheduler = Scheduler(sys.argv[1], post_enqueue=lambda info, error: {hook})
scheduler.register("@every 1s", "t", name="n", missed="all")
print("begun", flush=True)
scheduler.run()
print("ended", flush=True)
"""


def program(url: str, hook: str = "None") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("{hook}", hook), url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_run_ends_at_a_signal_and_clears_up(url: str, db: Redis, signum: signal.Signals) -> None:
    with program(url) as process:
        wait_until(lambda: published(db))
        process.send_signal(signum)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "begun\nended\n", "")
    assert left_keys(db) == []


@pytest.mark.parametrize("hook", ["scheduler.shutdown()", "sys.exit()"])
def test_run_ends_when_a_hook_ends_it(url: str, db: Redis, hook: str) -> None:
    with program(url, hook) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "begun\nended\n", "")
    assert left_keys(db) == []


def test_a_second_signal_does_not_wait_for_a_hook_that_hangs(url: str, db: Redis) -> None:
    with program(url, "__import__('time').sleep(1000)") as process:
        wait_until(lambda: db.llen(keys.pending("default")))
        process.send_signal(signal.SIGTERM)

        def ended_when_told_again() -> bool:
            process.send_signal(signal.SIGTERM)
            return process.poll() is not None

        wait_until(ended_when_told_again)
        assert process.wait() == -signal.SIGTERM


def test_two_programs_of_which_one_is_killed_enqueue_each_tick_once(url: str, db: Redis) -> None:
    """The killed one is replaced, and killed again: no tick is missing, none is there twice."""

    def ticks() -> list[int]:
        found: Any = db.keys(keys.tick("default", "n", 0).replace(":0:", ":*:"))
        return sorted(int(key.decode().split(":")[3]) for key in found)

    with program(url) as steady:
        for _ in range(3):
            with program(url) as victim:
                assert victim.stdout is not None
                assert victim.stdout.readline() == "begun\n"
                so_far = len(ticks())
                wait_until(lambda count=so_far: len(ticks()) >= count + 2)  # type: ignore[misc]  # bound now
                victim.kill()
                victim.communicate()
        steady.send_signal(signal.SIGTERM)
        steady.communicate(timeout=PATIENCE_S)
    done = ticks()
    assert len(done) >= 6
    assert done == list(range(done[0], done[-1] + 1))
    assert db.llen(keys.pending("default")) == len(done)
