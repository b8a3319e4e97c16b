"""Groups: one task comes of each, and no part of it is lost or in two, whatever dies meanwhile."""

import json
import os
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fastq import Client, Server, ServerConfig, Task
from tests.e2e.harness import Worker, Workers
from tests.e2e.view import View
from tests.processes import is_running
from tests.waiting import wait_until

AGGREGATOR = "tests.e2e.apps:aggregate"
GROUPS = ("--group-aggregator", AGGREGATOR, "--group-grace-period", "1", "--concurrency", "1")
WATCHFUL = {"recoverer_interval_s": 0.2}
SHORT = {**WATCHFUL, "aggregation_s": 2}
BRIEF = {**SHORT, "lease_s": 1, "recover_grace_s": 1, "heartbeat_interval_s": 0.3, "settle_s": 0.4}
"""With leases that end soon, too."""


def enqueue(client: Client, group: str, payloads: str, queue: str = "default", **options: Any) -> None:
    """Put a task into the group for each letter; those of one second are in the order of their ids."""
    for payload in payloads:
        client.enqueue(
            Task("part", payload.encode(), group=group, queue=queue, task_id=f"{group}-{payload}", **options)
        )


def start_short(workers: Workers, timing: Mapping[str, float] = SHORT, **config: object) -> Worker:
    """Start a worker whose sets are given back soon."""
    return workers.start_timed(
        timing, concurrency=1, group_aggregator=AGGREGATOR, group_grace_period=1, **config
    ).is_ready()


def wholes(view: View, queue: str = "default") -> Counter[tuple[str, str]]:
    """Return group and parts of each task that came of a group and has run."""
    found = (view.json_result(task_id, queue) for task_id in view.ids("completed", queue))
    return Counter((group, "".join(parts)) for group, parts in found)


def nothing_is_left(view: View, queue: str = "default") -> bool:
    kinds = ("g:*", "groups", "aggregation_sets")
    return not any(view.db.keys(f"asynq:{{{queue}}}:{kind}") for kind in kinds)


# As it should be --------------------------------------------------------------------------------------------------


def test_the_tasks_of_a_group_become_one_that_is_run(workers: Workers, client: Client, view: View) -> None:
    enqueue(client, "g1", "abc")
    enqueue(client, "g2", "x", queue="low")
    enqueue(client, "g2", "y")
    worker = workers.start(*GROUPS, "--queues", "default=2,low=1").is_ready()
    wait_until(lambda: view.size("completed") == 2 and view.size("completed", "low") == 1)
    assert wholes(view) == {("g1", "abc"): 1, ("g2", "y"): 1}
    assert wholes(view, "low") == {("g2", "x"): 1}
    wait_until(lambda: nothing_is_left(view) and nothing_is_left(view, "low"))
    assert worker.stop() == 0, worker.text
    assert "3 groups aggregated" in worker.text


def test_a_group_of_the_greatest_size_does_not_wait(workers: Workers, client: Client, view: View) -> None:
    enqueue(client, "g", "abcde")
    workers.start("--group-aggregator", AGGREGATOR, "--group-max-size", "2", "--concurrency", "1").is_ready()
    wait_until(lambda: view.size("completed") == 2)
    assert wholes(view) == {("g", "ab"): 1, ("g", "cd"): 1}
    assert view.size("g:g") == 1


def test_a_task_that_was_scheduled_joins_its_group(workers: Workers, client: Client, view: View) -> None:
    enqueue(client, "g", "a", process_in=1)
    workers.start(*GROUPS).is_ready()
    wait_until(lambda: wholes(view) == {("g", "a"): 1})


def test_unique_tasks_can_be_enqueued_again_once_they_were_aggregated(
    workers: Workers, client: Client, view: View
) -> None:
    enqueue(client, "g", "a", unique=3600)
    workers.start(*GROUPS).is_ready()
    wait_until(lambda: wholes(view) == {("g", "a"): 1})
    wait_until(lambda: not view.db.keys("asynq:{default}:unique:*"))
    enqueue(client, "g", "a", unique=3600)


def test_the_aggregator_is_no_child_of_the_pool_nor_the_main_process(
    workers: Workers, client: Client, view: View
) -> None:
    enqueue(client, "wait", "a")
    worker = workers.start(*GROUPS).is_ready()
    child = view.expect("aggregating", "wait").pid
    assert child in worker.family() - {worker.pid}
    client.enqueue("told", retention=60)
    assert view.expect("ran").pid != child
    view.open("wait")
    wait_until(lambda: view.size("completed") == 2)


def test_burst_ends_when_what_was_being_aggregated_has_run(workers: Workers, client: Client, view: View) -> None:
    enqueue(client, "wait", "ab")
    for _ in range(2):
        client.enqueue("wait", headers={"gate": "first"})
    worker = workers.start(*GROUPS, "--burst")
    told = {view.event().what, view.event().what}
    assert told == {"started", "aggregating"}
    view.open("first", times=2)
    view.open("wait")
    assert worker.ended() == 0, worker.text
    assert wholes(view) == {("wait", "ab"): 1}


def test_a_server_object_aggregates_too(client: Client, view: View, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(client, "g", "ab")
    config = ServerConfig(concurrency=1, group_aggregator=AGGREGATOR, group_grace_period=1)
    monkeypatch.setenv("FASTQ_REDIS_URL", url)
    server = Server("tests.e2e.apps:mux", url, config)
    server.start()
    try:
        wait_until(lambda: wholes(view) == {("g", "ab"): 1})
    finally:
        server.shutdown()


# Bad aggregators --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tests.e2e.apps:nosuch", "tests.e2e.apps has no 'nosuch'"),
        ("tests.e2e.nosuch:f", "there is no module 'tests.e2e.nosuch'"),
        ("tests.e2e.apps:EVENTS", "group_aggregator='tests.e2e.apps:EVENTS' is not callable"),
        ("tests.e2e.apps:aggregate_later", "is a coroutine, which would not run: write it with def"),
    ],
)
def test_a_name_that_leads_to_no_aggregator_ends_the_server_at_its_start(
    name: str, says: str, workers: Workers
) -> None:
    worker = workers.start("--group-aggregator", name)
    assert worker.ended() == 2, worker.text
    (line,) = [line for line in worker.lines if says in line]
    assert line.startswith("fastq-worker: ")


def test_a_group_that_fails_is_said_and_the_others_are_aggregated(workers: Workers, client: Client, view: View) -> None:
    enqueue(client, "bad", "ab")
    enqueue(client, "good", "xy")
    worker = workers.start(*GROUPS).is_ready()
    worker.wait_for("group 'bad' of queue default was not aggregated: ValueError: no bad (")
    wait_until(lambda: wholes(view) == {("good", "xy"): 1})
    wait_until(lambda: view.size("g:bad") == 2)
    worker.wait_for("its 2 tasks will be aggregated again in 10 s")
    assert worker.stop() == 0, worker.text


def test_an_aggregator_that_takes_too_long_is_ended_and_its_tasks_go_back(
    workers: Workers, client: Client, view: View
) -> None:
    enqueue(client, "wait", "ab")
    worker = start_short(workers)
    child = view.expect("aggregating").pid
    worker.wait_for("it took longer than 1.66667 s and was ended")
    wait_until(lambda: view.size("g:wait") == 2)
    assert not is_running(child)
    enqueue(client, "g", "x")
    wait_until(lambda: wholes(view) == {("g", "x"): 1})
    assert worker.stop() == 0, worker.text


# What dies --------------------------------------------------------------------------------------------------------


def test_the_death_of_the_aggregation_child_gives_the_tasks_back_at_once(
    workers: Workers, client: Client, view: View
) -> None:
    enqueue(client, "wait", "ab")
    worker = workers.start(*GROUPS).is_ready()
    os.kill(view.expect("aggregating").pid, signal.SIGKILL)
    worker.wait_for("died with signal SIGKILL")
    wait_until(lambda: view.size("g:wait") == 2)
    other = workers.start(*GROUPS).is_ready()
    view.expect("aggregating")
    view.open("wait")
    wait_until(lambda: wholes(view) == {("wait", "ab"): 1})
    wait_until(lambda: nothing_is_left(view))
    for each in (worker, other):
        assert each.stop() == 0, each.text


def let_sets_be_overdue(view: View) -> None:
    """Let the time be over that servers have for the sets that they took."""
    (name,) = view.ids("aggregation_sets")
    view.db.zadd("asynq:{default}:aggregation_sets", {name: 1})


def test_what_a_killed_server_was_aggregating_is_aggregated_by_another(
    workers: Workers, client: Client, view: View
) -> None:
    enqueue(client, "wait", "ab")
    killed = start_short(workers, WATCHFUL)
    view.expect("aggregating")
    killed.signal(signal.SIGKILL)
    killed.leaves_nothing()
    assert len(view.db.keys("asynq:{default}:g:wait:*")) == 1
    let_sets_be_overdue(view)
    other = start_short(workers, WATCHFUL)
    other.wait_for("returned tasks to group 'wait' of queue default")
    view.open("wait", times=2)
    wait_until(lambda: wholes(view) == {("wait", "ab"): 1})
    wait_until(lambda: nothing_is_left(view))
    assert other.stop() == 0, other.text


def test_a_frozen_server_that_wakes_does_not_aggregate_what_another_one_has(
    workers: Workers, client: Client, view: View
) -> None:
    enqueue(client, "wait", "ab")
    frozen = start_short(workers, WATCHFUL)
    view.expect("aggregating")
    frozen.signal(signal.SIGSTOP)
    let_sets_be_overdue(view)
    view.open("wait", times=2)  # its aggregator answers, and nobody hears it
    other = start_short(workers, WATCHFUL)
    wait_until(lambda: wholes(view) == {("wait", "ab"): 1})
    frozen.signal(signal.SIGCONT)
    frozen.wait_for("group 'wait' of queue default was not aggregated")
    assert wholes(view) == {("wait", "ab"): 1}
    wait_until(lambda: nothing_is_left(view))
    for each in (frozen, other):
        assert each.stop() == 0, each.text


@pytest.mark.parametrize(("shutdown_timeout", "is_aggregated"), [("600", True), ("0.2", False)])
def test_a_stop_waits_for_the_aggregator_or_gives_the_tasks_back(
    shutdown_timeout: str, is_aggregated: bool, workers: Workers, client: Client, view: View
) -> None:
    enqueue(client, "wait", "ab")
    worker = workers.start(*GROUPS, "--shutdown-timeout", shutdown_timeout).is_ready()
    view.expect("aggregating")
    worker.signal(signal.SIGTERM)
    worker.wait_for("shutting down; ")
    if is_aggregated:
        view.open("wait")
    assert worker.ended() == 0, worker.text
    assert (view.size("pending"), view.size("g:wait")) == ((1, 0) if is_aggregated else (0, 2))
    assert not view.db.exists("asynq:{default}:aggregation_sets")


def test_every_part_is_in_one_task_while_servers_are_killed_again_and_again(
    workers: Workers, client: Client, view: View, db: Redis, tmp_path: Path
) -> None:
    parts = {f"{number:03d}" for number in range(600)}
    for chance in range(4):
        done = int(db.zcard("asynq:{default}:completed"))
        for number in range(150 * chance, 150 * (chance + 1)):  # a quick server has something to do each time
            client.enqueue(Task("part", f"{number:03d}".encode(), group=f"g{number % 40}"))
        killed = start_short(workers, BRIEF, group_max_size=3)
        wait_until(lambda: db.zcard("asynq:{default}:completed") > done, interval_s=0.0005)  # noqa: B023 - asked now
        killed.signal(signal.SIGKILL)
        killed.leaves_nothing()
    last = start_short(workers, BRIEF, delayed_task_check_interval=0.1)

    def all_have_run() -> bool:
        for task_id in view.ids("retry"):
            db.zadd("asynq:{default}:retry", {task_id: 1})
        done = [json.loads(view.message(task_id).payload)[1] for task_id in view.ids("completed")]
        return {part for found in done for part in found} == parts

    wait_until(all_have_run, interval_s=0.2)
    done_parts = Counter(
        part for task_id in view.ids("completed") for part in json.loads(view.message(task_id).payload)[1]
    )
    assert set(done_parts.values()) == {1}
    wait_until(lambda: nothing_is_left(view))
    assert last.stop() == 0, last.text
