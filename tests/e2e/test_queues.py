"""Which queue is served when: weights, priorities, pauses, due times, and how an idle worker wakes."""

import time

import pytest
from redis import Redis

from fastq import Client, Task
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.waiting import PATIENCE_S, wait_until

NEVER = ("--task-check-interval", "3600")  # only a wake-up brings tasks then


def test_busy_queues_share_the_worker_by_their_weights(workers: Workers, client: Client, view: View, db: Redis) -> None:
    """After 100 000 tasks from queues that never ran dry, each share is within 2 % of its weight's.

    A task in each queue says when that is, as nobody outside is quick enough on every machine.
    """
    weights = {"critical": 6, "default": 3, "low": 1}
    for queue, weight in weights.items():
        ok = [Task("ok")] * (10_000 * weight)
        client.enqueue_many([*ok, Task("pause-queues", [*weights]), *ok[: 2000 * weight]], queue=queue)
    # What waited too long would be taken back, and after the pause nobody would take it again.
    flags = ("--concurrency", "2", "--prefetch-time", "60")
    workers.start("--queues", "critical=6,default=3,low=1", *flags).is_ready()
    wait_until(lambda: db.exists("asynq:{critical}:paused"))
    wait_until(lambda: not any(view.size("active", queue) for queue in weights))
    assert all(view.size("pending", queue) for queue in weights), "a queue ran dry"
    found = {queue: view.count("processed", queue) for queue in weights}
    total = sum(found.values())
    assert total > 90_000
    for queue, weight in weights.items():
        assert found[queue] / total == pytest.approx(weight / 10, rel=0.02), found


def test_strict_priority_serves_the_top_first(workers: Workers, client: Client, view: View) -> None:
    for queue in ("low", "default", "critical"):
        for n in range(20):
            client.enqueue("wait", task_id=f"{queue}-{n:02}", queue=queue)
    view.open(times=60)
    # What waited too long would be taken back while the child begins with what stood behind it.
    flags = ("--burst", "--strict-priority", "--concurrency", "1", "--prefetch-time", "60")
    worker = workers.start(*flags, "--queues", "low=1,critical=6,default=3")
    assert worker.ended() == 0, worker.text
    started = [event.task_id for event in view.events() if event.what == "started"]
    assert started == [f"{queue}-{n:02}" for queue in ("critical", "default", "low") for n in range(20)]


def test_a_paused_queue_waits_and_its_neighbours_do_not(
    workers: Workers, client: Client, view: View, db: Redis
) -> None:
    workers.start("--queues", "a=1,b=1", "--concurrency", "1", "--task-check-interval", "0.1").is_ready()
    db.set("asynq:{a}:paused", int(time.time()))
    waiting = [client.enqueue("ok", queue="a", retention=60).id for _ in range(5)]
    served = [client.enqueue("ok", queue="b", retention=60).id for _ in range(5)]
    for task_id in served:
        view.until("completed", task_id, "b")
    assert view.ids("pending", "a") == waiting
    db.delete("asynq:{a}:paused")
    for task_id in waiting:
        view.until("completed", task_id, "a")


def test_a_pause_leaves_what_runs_alone_and_takes_no_more(
    workers: Workers, client: Client, view: View, db: Redis
) -> None:
    running = client.enqueue("wait", retention=60).id
    workers.start("--concurrency", "1", "--task-check-interval", "0.1").is_ready()
    view.expect("started", running)
    db.set("asynq:{default}:paused", int(time.time()))
    late = client.enqueue("ok", retention=60).id
    view.open()
    view.until("completed", running)
    wait_until(lambda: view.size("active") == 0)
    assert view.state(late) == "pending"
    db.delete("asynq:{default}:paused")
    view.until("completed", late)


def test_delayed_tasks_start_when_they_are_due(workers: Workers, client: Client, view: View) -> None:
    """The look every hour would bring none of them; the forwarder looks when it knows that one is due."""
    due = [client.enqueue("wait", process_in=seconds).id for seconds in (4, 2, 3)]
    view.open(times=3)
    scores = {task_id: float(view.db.zscore("asynq:{default}:scheduled", task_id) or 0) for task_id in due}
    workers.start("--concurrency", "1", "--delayed-task-check-interval", "3600").is_ready()
    began = []
    for _ in due:
        event = view.event()
        late_s = time.time() - scores[event.task_id]
        assert 0 <= late_s < PATIENCE_S, late_s  # 0.1 s on a quiet machine
        view.expect("done", event.task_id)
        began.append(scores[event.task_id])
    assert began == sorted(scores.values()), "in the order of their times, which are whole seconds"


def test_delayed_tasks_that_come_later_wait_for_the_next_look_at_most(
    workers: Workers, client: Client, view: View
) -> None:
    workers.start("--concurrency", "1", "--delayed-task-check-interval", "0.3").is_ready()
    task_id = client.enqueue("ok", process_in=1, retention=60).id
    view.until("completed", task_id)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_an_idle_worker_wakes_for_a_push(
    workers: Workers, client: Client, view: View, db: Redis, is_flushed: bool
) -> None:
    workers.start("--queues", "a=5,b=1", "--concurrency", "1", *NEVER).is_ready()
    wait_until(lambda: int(view.facts("stats")["tracking_total_keys"]) == 2)
    if is_flushed:
        db.flushall()
    for queue in ("b", "a"):
        view.until("completed", client.enqueue("ok", queue=queue, retention=60).id, queue)


def test_an_idle_worker_keeps_waking(workers: Workers, client: Client, view: View) -> None:
    """Every wake-up is followed by another wait: a hundred tasks, each sent when the one before it has ended."""
    workers.start("--concurrency", "2", *NEVER).is_ready()
    for _ in range(100):
        view.until("completed", client.enqueue("ok", retention=60).id)


def test_where_waiting_is_forbidden_queues_are_polled(workers: Workers, client: Client, view: View) -> None:
    view.forbid("client")
    worker = workers.start("--concurrency", "1", "--task-check-interval", "0.2").is_ready()
    worker.wait_for("queue default, and maybe others, is polled, because Redis refused the blocking wait")
    for _ in range(3):
        view.until("completed", client.enqueue("ok", retention=60).id)
    assert worker.text.count("is polled") == 1
    assert worker.stop() == 0, worker.text


def test_each_of_many_queues_is_waited_for(workers: Workers, client: Client, view: View) -> None:
    queues = [f"q{n:02}" for n in range(24)]
    workers.start("--queues", ",".join(queues), "--concurrency", "1", "--task-check-interval", "0.2").is_ready()
    wait_until(lambda: int(view.facts("stats")["tracking_total_keys"]) == 24)
    for queue in reversed(queues):
        view.until("completed", client.enqueue("ok", queue=queue, retention=60).id, queue)
