"""Handlers that hold the interpreter, hang, or are canceled: leases hold, limits hold, slots are used again."""

import os
from datetime import UTC, datetime, timedelta

import pytest

from fastq import Client, Inspector, Task
from fastq.broker.operations.cancel import cancel_processing
from fastq.broker.transport.open import open_broker
from tests.e2e.apps import EVENTS
from tests.e2e.harness import Worker, Workers
from tests.e2e.view import Event, View
from tests.processes import is_running
from tests.waiting import wait_until

APPS = "tests/e2e/apps.py"
HELD = {"lease_s": 2, "recover_grace_s": 60, "recoverer_interval_s": 0.2, "heartbeat_interval_s": 0.4, "settle_s": 0.4}
"""With leases that end soon, and a grace in which a machine may stand still."""
GRACES_S = {"deaf": 3.0, "async-deaf": 3.0, "c-loop": 0.5, "async-stuck": 0.5}
"""Those that nothing ends but a kill; the deaf have the time to say that they were told."""


def start(workers: Workers, type: str, *flags: str) -> Worker:
    """Start a worker that has as much patience as a handler needs to end as it should, on a busy machine, too."""
    grace_s = GRACES_S.get(type, 600.0)
    return workers.start("--concurrency", "1", "--timeout-grace", str(grace_s), *flags).is_ready()


# Leases -----------------------------------------------------------------------------------------------------------


def test_a_handler_that_holds_the_interpreter_keeps_its_lease(workers: Workers, client: Client, view: View) -> None:
    """It holds it for more than twice the lease, while another server looks for leases that have ended."""
    for _ in range(2):
        workers.start_timed(HELD, concurrency=1).is_ready()
    let_go = workers.directory / "let-go"
    os.mkfifo(let_go)
    task_id = client.enqueue(Task("gil", headers={"fifo": str(let_go)}, retention=3600)).id
    view.expect("started", task_id)
    leases = []

    def was_extended_twice_over() -> bool:
        leases.append(float(view.db.zscore("asynq:{default}:lease", task_id) or 0))
        return leases[-1] > leases[0] + 2 * HELD["lease_s"]

    wait_until(was_extended_twice_over)
    assert min(leases) > 0
    let_go.write_bytes(b"!")
    view.expect("done", task_id)
    message = view.until("completed", task_id)
    assert message is not None
    assert (message.retried, view.count("processed"), view.count("failed")) == (0, 1, 0)


# Time -------------------------------------------------------------------------------------------------------------

SOFT = "TaskTimeout: the task's time is up"
KILLED = "TaskTimeout: the handler did not end in time and its process was killed"


def hang(client: Client, view: View, type: str) -> Event:
    """Enqueue a task whose time is up in the middle of its handler; one that never came to tell of it has more."""
    for timeout_s in (1, 5, 25):
        task_id = client.enqueue(Task(type, timeout=timeout_s)).id

        def is_over(task_id: str = task_id) -> bool:
            return view.state(task_id) not in ("pending", "active")

        wait_until(lambda: view.db.llen(EVENTS) or is_over())
        if view.events_so_far()[:1] == ["started"]:
            return view.expect("started", task_id)
        wait_until(is_over)
        view.events()
    raise AssertionError(f"{type} never began within its time")


@pytest.mark.parametrize(
    ("type", "error"),
    [
        ("spin", SOFT),
        ("clean", SOFT),
        ("deaf", KILLED),
        ("c-loop", KILLED),
        ("async-wait", SOFT),
        ("async-stuck", KILLED),
        ("async-deaf", KILLED),
    ],
)
def test_a_hanging_handler_ends_when_its_time_is_up_and_its_slot_is_used_again(
    workers: Workers, client: Client, view: View, url: str, type: str, error: str
) -> None:
    start(workers, type)
    hanging = hang(client, view, type)
    message = view.until("retry", hanging.task_id)
    assert message is not None
    assert message.error_msg.startswith(error)
    assert (f"{APPS}:" in message.error_msg) is (error is SOFT)  # the place in the user's code
    assert message.retried == 1
    with Inspector(url) as inspector:
        (attempt,) = inspector.get_failed_attempts("default", hanging.task_id)
    assert attempt.error.startswith(error[:60])
    assert attempt.started_at is not None
    assert attempt.ended_at - attempt.started_at >= timedelta(seconds=0.5)
    told = [event.what for event in view.events()]
    assert told == {"clean": ["cleaned"], "deaf": ["told"], "async-deaf": ["told"]}.get(type, [])
    after = client.enqueue("wait", retention=3600).id
    next_run = view.expect("started", after)
    assert is_running(hanging.pid) is (error is SOFT)
    assert (next_run.pid == hanging.pid) is (error is SOFT)
    view.open()
    view.until("completed", after)


# Upstream, the token is released while the handler still runs: issues 532 and 642.
@pytest.mark.parametrize("type", ["deaf", "c-loop"])
def test_a_timed_out_handler_that_goes_on_keeps_its_slot_and_is_not_run_beside_itself(
    workers: Workers, client: Client, view: View, type: str
) -> None:
    hanging = client.enqueue(Task(type, timeout=1, max_retry=1)).id
    start(workers, type, "--retry-delay", "tests.e2e.apps:quick_retry", "--delayed-task-check-interval", "0.05")
    first = view.expect("started", hanging)
    others = {client.enqueue("ok").id for _ in range(3)}
    while (event := view.event()).what == "told":
        pass
    assert (event.what, event.task_id, event.pid != first.pid) == ("started", hanging, True)
    assert not is_running(first.pid)
    message = view.until("archived", hanging)
    assert message is not None
    assert message.retried == 1
    wait_until(lambda: not any(view.state(task_id) for task_id in others))
    assert {event.pid for event in view.events()} <= {event.pid}


def test_what_waits_does_not_begin_while_all_slots_have_timed_out_handlers_that_go_on(
    workers: Workers, client: Client, view: View
) -> None:
    for _ in range(2):
        client.enqueue(Task("c-loop", timeout=1, max_retry=0))
    client.enqueue_many(Task("told") for _ in range(20))
    workers.start("--concurrency", "2", "--timeout-grace", "1").is_ready()
    hanging = []
    while (event := view.event()).what == "started":
        hanging.append(event.pid)
    assert event.what == "ran"
    assert sum(map(is_running, hanging)) < 2, "three handlers on two slots"


def test_the_neighbours_of_a_coroutine_that_blocks_its_loop_run_again_free_of_charge(
    workers: Workers, client: Client, view: View
) -> None:
    ids = {client.enqueue("async-gate", retention=3600, max_retry=1).id for _ in range(2)}
    once = client.enqueue("async-gate", max_retry=0).id
    start(workers, "async-stuck")
    first = [event for event in (view.expect("started") for _ in range(3)) if event.task_id != once]
    stuck = client.enqueue(Task("async-stuck", timeout=1)).id
    view.expect("started", stuck)
    again = [view.expect("started") for _ in ids]
    assert {event.task_id for event in first} == {event.task_id for event in again} == ids
    assert {event.pid for event in first}.isdisjoint({event.pid for event in again})
    view.open(times=2)
    for task_id in ids:
        message = view.until("completed", task_id)
        assert message is not None
        assert (message.retried, message.error_msg) == (0, "")
    message = view.until("archived", once)
    assert message is not None
    assert "with max_retry=0 it runs at most once" in message.error_msg
    message = view.until("retry", stuck)
    assert message is not None
    assert message.error_msg.startswith(KILLED)
    assert view.count("failed") == 2
    assert {(event.what, event.task_id) for event in view.events()} == {("done", task_id) for task_id in ids}


def test_the_message_s_own_deadline_is_absolute(workers: Workers, client: Client, view: View) -> None:
    start(workers, "spin")
    for seconds in (2, 8, 32):  # one that begins too late does not run at all
        task_id = client.enqueue("spin", deadline=datetime.now(UTC) + timedelta(seconds=seconds)).id
        message = view.until("retry", task_id)
        assert message is not None
        if view.events():
            assert message.error_msg.startswith(SOFT)
            break
    else:
        raise AssertionError("none began before its deadline")


def test_waiting_tasks_go_on_when_the_one_before_them_is_killed(workers: Workers, client: Client, view: View) -> None:
    quick = [client.enqueue("ok", retention=3600).id for _ in range(50)]
    hanging = client.enqueue(Task("c-loop", timeout=1)).id
    rest = [client.enqueue("ok", retention=3600).id for _ in range(50)]
    start(workers, "c-loop", "--prefetch-time", "60")
    killed = view.until("retry", hanging)
    assert killed is not None
    assert killed.error_msg.startswith(KILLED)
    for task_id in quick + rest:
        message = view.until("completed", task_id)
        assert message is not None
        assert message.retried == 0


# Cancellation -----------------------------------------------------------------------------------------------------


def cancel(view: View, task_id: str) -> None:
    """Publish as asynq's Inspector does, once a server listens."""
    wait_until(lambda: view.db.publish("asynq:cancel", task_id) == 1)


@pytest.mark.parametrize(
    ("type", "error"),
    [
        ("clean", "TaskCanceled: the task was canceled"),
        ("spin", "TaskCanceled: the task was canceled"),
        ("async-wait", "TaskCanceled: the task was canceled"),
        ("deaf", "TaskCanceled: the handler did not end when it was canceled and its process was killed"),
        ("c-loop", "TaskCanceled: the handler did not end when it was canceled and its process was killed"),
    ],
)
def test_a_running_task_is_canceled(workers: Workers, client: Client, view: View, type: str, error: str) -> None:
    task_id = client.enqueue(Task(type)).id
    start(workers, type)
    view.expect("started", task_id)
    cancel(view, task_id)
    message = view.until("retry", task_id)
    assert message is not None
    assert message.error_msg.startswith(error)
    assert message.retried == 1
    view.until("completed", client.enqueue("ok", retention=3600).id)


def test_a_waiting_task_is_canceled_and_never_runs(workers: Workers, client: Client, view: View) -> None:
    for n in range(12):
        client.enqueue(Task("wait", task_id=f"id-{n:02}", retention=3600))
    view.open(times=4)  # quick at first, so that some are fetched ahead
    start(workers, "wait", "--prefetch-time", "60")
    wait_until(lambda: view.size("completed") == 4)
    wait_until(lambda: view.size("active") > 1)
    waiting = max(view.ids("active"))
    cancel(view, waiting)
    message = view.until("retry", waiting)
    assert message is not None
    assert message.error_msg == "TaskCanceled: the task was canceled before it began"
    view.open(times=8)
    wait_until(lambda: view.size("completed") == 11)
    assert waiting not in {event.task_id for event in view.events()}


def test_a_task_that_is_enqueued_after_its_id_was_canceled_runs(workers: Workers, client: Client, view: View) -> None:
    """A server remembers an id only for a dequeue that was asked for before: that task was on its way to it."""
    start(workers, "wait")
    cancel(view, "to-come")
    client.enqueue("wait", task_id="to-come", max_retry=3, retention=3600)
    view.expect("started", "to-come")
    view.open()
    assert view.until("completed", "to-come") is not None


def test_canceling_what_is_not_here_harms_nobody(workers: Workers, client: Client, view: View) -> None:
    worker = start(workers, "ok")
    cancel(view, "nobody")
    view.db.publish("asynq:cancel", b"\xff\xfe")
    view.until("completed", client.enqueue("ok", retention=3600).id)
    assert "Traceback" not in worker.text


def cancel_as(workers: Workers, view: View, task_id: str, outcome: str, queue: str = "default") -> None:
    """Publish as fastq's Inspector does, once a server listens."""
    channels = "asynq:cancel", "asynq:cancel:as"
    wait_until(lambda: [count for _, count in view.db.pubsub_numsub(*channels)] == [1, 1])
    broker = open_broker(workers.url)
    broker.drive(cancel_processing(task_id, queue, outcome))
    broker.close()


@pytest.mark.parametrize("type", ["clean", "c-loop", "async-wait", "async-stuck"])
@pytest.mark.parametrize(("outcome", "state"), [("retry", "retry"), ("archive", "archived"), ("delete", "")])
def test_a_running_task_ends_as_its_cancellation_says(
    workers: Workers, client: Client, view: View, type: str, outcome: str, state: str
) -> None:
    task_id = client.enqueue(Task(type, unique=3600)).id
    start(workers, type)
    view.expect("started", task_id)
    cancel_as(workers, view, task_id, outcome)
    message = view.until(state, task_id)
    if message is not None:
        assert message.error_msg.startswith("TaskCanceled: ")
        assert message.retried == (outcome == "retry")
    assert [view.size(where) for where in ("active", "lease", "pending")] == [0, 0, 0]
    assert view.count("failed") == (outcome != "delete")
    if outcome == "delete":
        assert client.enqueue(Task(type, unique=3600)).id != task_id, "its lock went with it"


@pytest.mark.parametrize(("outcome", "state"), [("archive", "archived"), ("delete", "")])
def test_a_waiting_task_ends_as_its_cancellation_says(
    workers: Workers, client: Client, view: View, outcome: str, state: str
) -> None:
    for n in range(12):
        client.enqueue(Task("wait", task_id=f"id-{n:02}", retention=3600))
    view.open(times=4)  # quick at first, so that some are fetched ahead
    start(workers, "wait", "--prefetch-time", "60")
    wait_until(lambda: view.size("completed") == 4)
    wait_until(lambda: view.size("active") > 1)
    waiting = max(view.ids("active"))
    cancel_as(workers, view, waiting, outcome)
    view.until(state, waiting)
    view.open(times=8)
    wait_until(lambda: view.size("completed") == 11)
    assert waiting not in {event.task_id for event in view.events()}


def test_a_cancellation_with_an_outcome_leaves_the_next_task_of_that_id_alone(
    workers: Workers, client: Client, view: View
) -> None:
    client.enqueue("clean", task_id="a")
    start(workers, "clean")
    view.expect("started", "a")
    cancel_as(workers, view, "a", "delete")
    view.until("", "a")
    client.enqueue("ok", task_id="a", retention=3600)
    view.until("completed", "a")


def test_a_cancellation_with_an_outcome_is_for_one_queue(workers: Workers, client: Client, view: View) -> None:
    for queue in ("q0", "q1"):
        client.enqueue(Task("async-wait", task_id="a", queue=queue))
    start(workers, "async-wait", "--queues", "q0,q1")
    for _ in range(2):
        view.expect("started", "a")
    cancel_as(workers, view, "a", "archive", "q1")
    view.until("archived", "a", "q1")
    assert view.state("a", "q0") == "active"


# Upstream, what a handler says once its context is done is ignored: issues 532, 968, 988.
@pytest.mark.parametrize("type", ["then-skip", "then-revoke", "async-then-skip", "async-then-revoke"])
@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_skip_retry_and_revoke_after_a_cancellation_or_timeout_are_not_ignored(
    workers: Workers, client: Client, view: View, type: str, way: str
) -> None:
    start(workers, type)
    if way == "cancel":
        task_id = client.enqueue(Task(type, timeout=3600)).id
        view.expect("started", task_id)
        cancel(view, task_id)
    else:
        task_id = hang(client, view, type).task_id
    if type.endswith("revoke"):
        view.until("", task_id)
        return
    message = view.until("archived", task_id)
    assert message is not None
    assert message.error_msg.startswith("SkipRetry: no use now")
