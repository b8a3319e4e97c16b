"""Work on many tasks: how far it is, that it ends between two pieces, and what a job waits for."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from fastq import BrokerError, Inspector, QueueNotFoundError, TaskFilter, TaskState
from fastq.broker.inspect import bulk as inspect_bulk
from fastq.broker.operation import Flow, Operation, Step
from fastq.broker.transport.open import open_broker
from fastq.errors import BrokerTimeoutError
from fastq.inspector.jobs import Job, Place, doing, doing_all, pausing
from fastq.inspector.progress import Progress, counting
from fastq.wire import keys
from tests.broker.harness import NOW_S
from tests.inspector.harness import Ask, Seeded

NAMES = "abcdefg"


class EnoughError(Exception):
    pass


@pytest.fixture(autouse=True)
def few_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_bulk, "TASKS_A_CALL", 3)


def seen_by(seen: list[tuple[int, int]], enough: int = 100) -> Callable[[Progress], None]:
    def note(progress: Progress) -> None:
        seen.append((progress.done, progress.total))
        if progress.done >= enough:
            raise EnoughError

    return note


@pytest.mark.parametrize("method", ["delete_all_tasks", "run_all_tasks", "archive_all_tasks"])
def test_progress_is_told_before_each_piece_and_at_the_end(ask: Ask, queue: Seeded, method: str) -> None:
    queue.add("retry", dict.fromkeys(NAMES, NOW_S))
    seen: list[tuple[int, int]] = []
    assert ask(method, "default", "retry", progress=seen_by(seen)) == 7
    assert seen == [(0, 7), (3, 7), (6, 7), (7, 7)]


def test_what_progress_raises_ends_the_work_between_two_pieces(ask: Ask, queue: Seeded) -> None:
    queue.pend(*NAMES)
    with pytest.raises(EnoughError):
        ask("delete_all_tasks", "default", "pending", progress=seen_by([], enough=3))
    assert sorted(queue.states()) == ["d", "e", "f", "g"]
    assert queue.places() == {"pending": ["g", "f", "e", "d"]}


def test_a_queue_is_deleted_with_progress_and_may_be_left_half_empty(ask: Ask, queue: Seeded) -> None:
    queue.pend(*NAMES)
    with pytest.raises(EnoughError):
        ask("delete_queue", "default", force=True, progress=seen_by([], enough=3))
    assert sorted(queue.states()) == ["d", "e", "f", "g"]
    seen: list[tuple[int, int]] = []
    ask("delete_queue", "default", force=True, progress=seen_by(seen))
    assert (seen[0], seen[-1]) == ((0, 4), (4, 4))
    assert queue.all_keys() == set()


@pytest.mark.parametrize("state", [*TaskState])
def test_tasks_are_counted(ask: Ask, queue: Seeded, state: TaskState) -> None:
    queue.pend("a")
    queue.activate("b", "c")
    for name in ("scheduled", "retry", "archived", "completed"):
        queue.add(name, {f"{name}1": NOW_S, f"{name}2": NOW_S})
    queue.group("g", {"x": 1, "y": 2})
    group = "g" if state is TaskState.AGGREGATING else None
    assert ask("count_tasks", "default", state, group=group) == (1 if state is TaskState.PENDING else 2)
    with pytest.raises(QueueNotFoundError):
        ask("count_tasks", "other", state, group=group)


@pytest.mark.parametrize("method", ["run_task", "archive_task", "delete_task"])
def test_a_task_in_another_state_than_expected_is_left_alone(ask: Ask, queue: Seeded, method: str) -> None:
    queue.add("scheduled", {"a": NOW_S})
    with pytest.raises(Exception, match="scheduled"):
        ask(method, "default", "a", expected="retry")
    with pytest.raises(ValueError, match="not 'retired'"):
        ask(method, "default", "a", expected="retired")
    assert queue.states() == {"a": "scheduled"}
    ask(method, "default", "a", expected="scheduled")
    assert queue.states() != {"a": "scheduled"}


# Jobs ---------------------------------------------------------------------------------------------------------------


def test_a_job_does_what_its_question_says(ask: Ask, queue: Seeded) -> None:
    queue.pend(*NAMES)
    job = doing_all("delete", Place("default", TaskState.PENDING), 7)
    assert (job.question, job.destroys) == ("Delete all 7 pending tasks of default, for good?", True)
    seen: list[tuple[int, int]] = []
    done = ask("carry_out", job, progress=seen_by(seen))
    assert (done.done, seen[0], seen[-1]) == (7, (0, 7), (6, 7))
    assert job.outcome(done) == "7 tasks deleted."


def test_a_job_on_named_tasks_goes_on_behind_one_that_moved_and_names_it(ask: Ask, queue: Seeded, url: str) -> None:
    queue.add("retry", {"a": NOW_S, "b": NOW_S, "c": NOW_S})
    with Inspector(url) as inspector:
        infos = inspector.list_tasks("default", "retry")
        inspector.archive_task("default", "b")
    job = doing("run", infos)
    done = ask("carry_out", job)
    assert (done.done, done.failures) == (2, ["b is archived now, no longer retry"])
    assert job.outcome(done) == "2 tasks made pending. 1 left unchanged: b is archived now, no longer retry"


def test_a_queue_is_paused_and_resumed_by_jobs(ask: Ask, queue: Seeded) -> None:
    queue.pend("a")
    for paused in (True, False):
        job: Job = pausing(ask("get_queue_info", "default"))
        assert ask("carry_out", job).done == 1
        assert bool(queue.db.exists(keys.paused("default"))) is paused


def test_a_job_insists_where_a_reply_is_lost_and_counts_what_may_be_done(url: str, queue: Seeded) -> None:
    queue.pend(*NAMES)
    lost = BrokerTimeoutError("no reply", operation="delete_tasks", maybe_applied=True)
    now, told = Progress(7), list[str]()

    def lossy(flow: Flow[Any]) -> Flow[Any]:
        """Carry out a flow; the reply of its second piece is lost once, and the question after it is not answered."""
        pieces = 0
        step: Step = next(flow)
        try:
            while True:
                result = yield step
                name = step.name if isinstance(step, Operation) else ""
                pieces += name == "delete_tasks"
                is_lost = (name == "delete_tasks" and pieces == 2) or (name == "EXISTS" and len(told) == 1)
                step = flow.throw(lost) if is_lost else flow.send(result)
        except StopIteration as end:
            return end.value

    def note(progress: Progress) -> None:
        if progress.trouble:
            told.append(f"{progress.done} and {progress.unsure}")

    with closing(open_broker(url)) as broker:
        job = doing_all("delete", Place("default", TaskState.PENDING), 7)
        broker.drive(lossy(job.work(0, now, note)))
    assert told == ["3 and 200", "3 and 400"]
    assert (now.done, now.trouble) == (4, None)  # those of the lost reply are not counted
    assert queue.states() == {}


def test_an_error_that_stays_ends_a_job(url: str, queue: Seeded) -> None:
    queue.pend("a")
    queue.db.delete(keys.pending("default"))
    queue.db.set(keys.pending("default"), "no list")
    work = doing_all("delete", Place("default", TaskState.PENDING), 1).work(0, Progress(1), lambda _: None)
    with closing(open_broker(url)) as broker, pytest.raises(BrokerError, match="WRONGTYPE"):
        broker.drive(work)


def test_counting_changes_nothing_of_what_a_flow_returns(url: str, queue: Seeded) -> None:
    def flow() -> Flow[str]:
        yield Operation("PING", (), ())
        return "its value"

    with closing(open_broker(url)) as broker:
        assert broker.drive(counting(flow(), Progress(), lambda _: None)) == "its value"


# Retry with filters -------------------------------------------------------------------------------------------------


def failed(queue: Seeded) -> None:
    queue.add("retry", {"r1": NOW_S}, type="mail:send", error_msg="TimeoutError: slow", last_failed_at=NOW_S)
    queue.add("retry", {"r2": NOW_S}, type="mail:send", error_msg="KeyError: 'x'", last_failed_at=NOW_S)
    queue.add("archived", {"a1": NOW_S}, type="mail:drop", error_msg="TimeoutError", last_failed_at=NOW_S - 100)
    queue.add("archived", {"a2": NOW_S}, type="video", error_msg="TimeoutError", last_failed_at=NOW_S - 100)


def test_failed_tasks_that_a_filter_leaves_are_run_again(ask: Ask, queue: Seeded) -> None:
    failed(queue)
    where = TaskFilter(type="mail:*", error="Timeout")
    assert [info.id for info in ask("find_tasks", "default", "archived", where)] == ["a1"]
    assert ask("retry_tasks", "default", where=where) == 2
    assert queue.states() == {"r1": "pending", "r2": "retry", "a1": "pending", "a2": "archived"}
    assert ask("retry_tasks", "default", states=["retry"]) == 1
    assert queue.states()["a2"] == "archived"


def test_a_search_tells_how_many_tasks_it_has_read(ask: Ask, queue: Seeded) -> None:
    failed(queue)
    seen: list[int] = []
    where = TaskFilter(error="KeyError")
    found = ask("find_tasks", "default", "retry", where, progress=lambda now: seen.append(now.done))
    assert ([info.id for info in found], seen) == (["r2"], [2])


def test_a_retry_with_a_filter_tells_of_its_reading_too(ask: Ask, queue: Seeded) -> None:
    failed(queue)
    seen: list[tuple[int, int]] = []
    where = TaskFilter(type="mail:*")
    assert ask("retry_tasks", "default", where=where, progress=lambda now: seen.append((now.done, now.total))) == 3
    assert seen[:2] == [(2, 4), (4, 4)]
    assert {total for _, total in seen[2:]} == {3}


def test_reading_for_a_retry_is_ended_by_what_progress_raises(ask: Ask, queue: Seeded) -> None:
    failed(queue)

    def stop(now: Progress) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        ask("retry_tasks", "default", where=TaskFilter(type="none"), progress=stop)


def test_a_planned_retry_without_a_filter_runs_what_fails_meanwhile_too(ask: Ask, queue: Seeded) -> None:
    failed(queue)
    job: Job = ask("plan_retry", "default", states=["archived"])
    assert job.total == 2
    queue.add("archived", {"a3": NOW_S})
    assert ask("carry_out", job).done == 3


def test_a_planned_retry_leaves_out_what_changed_since(ask: Ask, queue: Seeded) -> None:
    failed(queue)
    job: Job = ask("plan_retry", "default", where=TaskFilter(error="Timeout"))
    assert (job.total, job.question[:8]) == (3, "Retry 3 ")
    queue.put("a1", "archived", error_msg="another run, another message")
    assert ask("carry_out", job).done == 2
    assert queue.states()["a1"] == "archived"


def test_one_failed_task_is_run_again_and_no_other(ask: Ask, queue: Seeded) -> None:
    failed(queue)
    queue.add("scheduled", {"s": NOW_S})
    ask("retry_task", "default", "a2")
    assert queue.states()["a2"] == "pending"
    for task_id, error in (("s", "cannot retry a task in state 'scheduled'"), ("none", "task not found")):
        with pytest.raises(Exception, match=error):
            ask("retry_task", "default", task_id)
    with pytest.raises(QueueNotFoundError):
        ask("retry_task", "other", "a2")


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"states": ["pending"]}, "state must be one of retry, archived, not 'pending'"),
        ({"states": ["retired"]}, "not 'retired'"),
        ({"states": []}, "states is empty; leave it out for all states"),
    ],
)
def test_wrong_states_are_refused(ask: Ask, queue: Seeded, named: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        ask("retry_tasks", "default", **named)
