"""Long tasks whose workers are told to stop and killed, jobs that end by themselves, a task with a new name."""

import json
import os
import random
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from fastq import Client
from tests.e2e.harness import Worker, Workers
from tests.e2e.long_app import LEDGER, old, renamed, steps, steps_async
from tests.e2e.view import View
from tests.waiting import wait_until

APP = "tests.e2e.long_app:app"
TIMES = {"recoverer_interval_s": 0.1, "heartbeat_interval_s": 0.3, "settle_s": 0.3}
STEPS = 200
TERM, KILL, CHILD = "SIGTERM", "SIGKILL", "SIGKILL of a child"


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ledger"
    path.touch()
    monkeypatch.setenv(LEDGER, str(path))
    return path


def done(ledger: Path) -> list[tuple[str, int]]:
    """Return the ids and steps that were done, in order."""
    return [(line.split()[0], int(line.split()[1])) for line in ledger.read_text().splitlines()]


def start(workers: Workers) -> Worker:
    """Start a worker that finds lost tasks soon, and runs what failed at once. Leases end only where a test says so."""
    return workers.start_timed(
        TIMES,
        APP,
        concurrency=2,
        delayed_task_check_interval=0.05,
        retry_delay="tests.e2e.long_app:soon",
        shutdown_timeout=60.0,
        max_lost=1,
    ).is_ready()


def get_on(ledger: Path, ids: list[str], steps: int) -> None:
    """Wait until each task has done more steps, and so saved a checkpoint, or all of them."""
    before = Counter(task_id for task_id, _ in done(ledger))

    def is_so() -> bool:
        now = done(ledger)
        count = Counter(task_id for task_id, _ in now)
        return all(count[one] >= before[one] + steps or (one, STEPS - 1) in now for one in ids)

    wait_until(is_so)


def strike(how: str, worker: Worker, view: View, ledger: Path) -> bool:
    """Stop a worker or kill it, or the child that did the last step; return whether the worker is gone."""
    if how == CHILD:
        with suppress(ProcessLookupError):
            os.kill(int(ledger.read_text().splitlines()[-1].split()[2]), signal.SIGKILL)
        return False
    if how == TERM:
        assert worker.stop() == 0, worker.text
        return True
    worker.signal(signal.SIGKILL)
    worker.leaves_nothing()
    leases, db = "asynq:{default}:lease", cast("Any", view.db)
    for task_id, score in db.zrange(leases, 0, -1, withscores=True):
        db.zadd(leases, {task_id: 1 + score % 1})  # it has ended; its fraction says whose it was
    return True


def test_a_kill_costs_a_long_task_one_step_at_most_and_a_stop_none(
    workers: Workers, client: Client, view: View, ledger: Path
) -> None:
    """More servers are killed than ``max_lost`` allows, but the tasks get on between the kills."""
    ids = [client.enqueue(function.task(STEPS), max_retry=25).id for function in (steps, steps_async)]
    strikes = [TERM, KILL, CHILD, TERM, KILL]
    chance = random.Random(14)
    chance.shuffle(strikes)
    worker = None
    for how in strikes:
        worker = worker or start(workers)
        get_on(ledger, ids, chance.randrange(3, 15))
        if strike(how, worker, view, ledger):
            worker = None
    worker = worker or start(workers)
    for task_id in ids:
        view.until("completed", task_id)
        assert view.result(task_id) == str(STEPS).encode()
        assert view.message(task_id).retried <= strikes.count(CHILD)
    assert worker.stop() == 0, worker.text
    times = Counter(done(ledger))
    assert set(times) == {(task_id, step) for task_id in ids for step in range(STEPS)}
    for task_id in ids:
        again = sum(count - 1 for (done_id, _), count in times.items() if done_id == task_id)
        assert again <= len(strikes) - strikes.count(TERM)


def test_a_server_that_goes_quiet_gives_its_long_tasks_back(
    workers: Workers, client: Client, view: View, ledger: Path
) -> None:
    ids = [client.enqueue(function.task(STEPS), max_retry=0).id for function in (steps, steps_async)]
    worker = start(workers)
    wait_until(lambda: len({task_id for task_id, _ in done(ledger)}) == 2)
    worker.signal(signal.SIGTSTP)
    wait_until(lambda: not view.size("active"))
    for task_id in ids:
        message = view.message(task_id)
        assert message.retried == 0
        assert 0 < int(message.headers["fastq-checkpoint"]) < STEPS
        assert message.error_msg.startswith("snoozed (not failed): its worker process stops; ")
    other = start(workers)
    for task_id in ids:
        view.until("completed", task_id)
    assert (worker.stop(), other.stop()) == (0, 0), worker.text + other.text
    assert sorted(done(ledger)) == sorted((task_id, step) for task_id in ids for step in range(STEPS))


def test_raw_handlers_are_told_to_stop_and_resume_from_a_state_of_their_own(
    workers: Workers, client: Client, view: View, ledger: Path
) -> None:
    states = client.enqueue("states", retention=3600).id
    awaits = client.enqueue("awaits", retention=3600).id
    worker = workers.start("--log-format", "json", "--concurrency", "2", app=APP).is_ready()
    wait_until(lambda: sorted(view.events_so_far()) == ["saved", "waits"])
    assert view.message(states).headers == {"fastq-checkpoint": '{"page":7}'}
    assert worker.stop() == 0, worker.text
    assert view.result(awaits) == b"true"
    assert view.message(states).retried == 1  # it raised, and kept what it had saved
    view.db.zadd("asynq:{default}:retry", {states: 1})
    again = workers.start("--burst", "--log-format", "json", "--delayed-task-check-interval", "0.05", app=APP)
    view.until("completed", states)
    assert view.result(states) == b'{"page":7}'
    assert again.ended() == 0, again.text
    (line,) = [line for line in again.lines if "it found" in line]
    said = json.loads(line)
    assert said.pop("ran_s") >= 0
    assert {**said, "time": "", "pid": 0} == {
        "time": "",
        "level": "warning",
        "logger": "shop",
        "pid": 0,
        "message": "it found {'page': 7}",
        "task_id": states,
        "task_type": "states",
        "queue": "default",
        "attempt": 2,
        "max_attempts": 26,
    }


# Jobs -------------------------------------------------------------------------------------------------------------


def test_a_job_ends_when_it_has_run_its_tasks_or_found_none_and_says_so(
    workers: Workers, client: Client, view: View, ledger: Path
) -> None:
    for id in range(5):
        client.enqueue(renamed.task(id))
    some = workers.start("--max-tasks", "3", app=APP)
    assert some.ended() == 0, some.text
    assert (view.count("processed"), view.size("pending")) == (3, 2)
    rest = workers.start("--exit-when-idle", "0.2s", "--max-tasks", "100", app=APP)
    assert rest.ended() == 0, rest.text
    assert (view.count("processed"), view.size("pending")) == (5, 0)
    for flag in ("--max-tasks", "--exit-when-idle"):
        early = workers.start(flag, "600", app=APP).is_ready()
        assert early.stop() == 3, early.text


# A new name -------------------------------------------------------------------------------------------------------


def test_a_task_gets_a_new_name_under_load_and_none_is_lost(
    workers: Workers, client: Client, view: View, ledger: Path, url: str
) -> None:
    """Workers first, which take both names, then the producers; old producers go on until after that."""
    ends = threading.Event()
    sent: list[int] = []

    def produce() -> None:
        with Client(url) as producer:
            while not ends.is_set():
                sent.append(len(sent))
                producer.enqueue(old.task(sent[-1]))

    before = workers.start("--concurrency", "1", app="tests.e2e.long_app:before").is_ready()
    producing = threading.Thread(target=produce)
    producing.start()
    try:
        wait_until(lambda: len(done(ledger)) > 50)
        after = workers.start("--concurrency", "1", app=APP).is_ready()
        assert before.stop() == 0, before.text
        count = len(done(ledger))
        new = [client.enqueue(renamed.task(-1 - id)).queue for id in range(100)]
        wait_until(lambda: len(done(ledger)) > count + 2 * len(new))
    finally:
        ends.set()
        producing.join()
    wait_until(lambda: len(done(ledger)) >= len(sent) + len(new))
    assert after.stop() == 0, after.text
    assert sorted(id for _, id in done(ledger)) == [*range(-len(new), 0), *range(len(sent))]
    assert (view.count("failed"), view.size("archived"), view.size("retry")) == (0, 0, 0)
