"""Tasks whose ids are their keys: each state by each policy, on a real Redis, and what lost replies leave."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operation import Flow, Pause, Soon, together
from fastq.broker.operations.enqueue import EnqueueBatch, EnqueueOutcome, NewTask, _put_keyed, enqueue_batches
from fastq.broker.operations.finish import Guard, PutBack, put_back
from fastq.broker.operations.keyed import Found, KeyTerms, list_again, put_again
from fastq.common.states import KeyOutcome, TaskState
from fastq.errors import BrokerConnectionError
from fastq.wire import keys
from tests.broker.harness import NOW_NS, NOW_S, OURS, QueueBench, message, queue_bench

POLICIES = ("keep", "replace", "postpone", "rerun")
LATER = NOW_S + 60
STATES = ("none", "pending", "scheduled", "retry", "active", "completed", "archived", "aggregating", "moving")

PUT, KEPT, REPLACED = KeyOutcome.PUT, KeyOutcome.KEPT, KeyOutcome.REPLACED
POSTPONED, RERUN, CONFLICT = KeyOutcome.POSTPONED, KeyOutcome.RERUN, EnqueueOutcome.ID_CONFLICT
TABLE: dict[str, tuple[object, ...]] = {
    "none": (PUT, PUT, PUT, PUT),
    "completed": (PUT, PUT, PUT, PUT),
    "archived": (PUT, PUT, PUT, PUT),
    "pending": (KEPT, REPLACED, REPLACED, REPLACED),
    "retry": (KEPT, REPLACED, REPLACED, REPLACED),
    "scheduled": (KEPT, REPLACED, POSTPONED, REPLACED),
    "active": (KEPT, KEPT, RERUN, RERUN),
    "aggregating": (KEPT, CONFLICT, CONFLICT, CONFLICT),
    "moving": (KEPT, CONFLICT, CONFLICT, CONFLICT),
}
"""What becomes of the second one, by the state of the first and by policy."""


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def new(policy: str, payload: bytes = b"new", at: int = 0, latest: int = 0, mark: str = "mark-2") -> NewTask:
    data = message("k", payload=payload, headers={"fastq-key": mark})
    return NewTask("k", data, run_at_s=at, terms=KeyTerms(policy, mark, latest))


def batch(*tasks: NewTask) -> EnqueueBatch:
    return EnqueueBatch("default", TaskState.PENDING, tasks, NOW_NS)


def put(bench: QueueBench, *tasks: NewTask, is_repeat: bool = False) -> list[Any]:
    return bench.run(_put_keyed(batch(*tasks), is_repeat=is_repeat))


def put_one(bench: QueueBench, task: NewTask) -> Any:
    (found,) = put(bench, task)
    return found


def let_be(bench: QueueBench, state: str) -> None:
    """Let there be a task with the key, in a state."""
    if state == "pending":
        bench.pend("k", payload=b"old")
    elif state == "active":
        bench.activate("k", payload=b"old")
    elif state != "none":
        bench.put("k", state, payload=b"old")
        if state not in ("aggregating", "moving"):
            bench.db.zadd(bench.key(state), {"k": LATER})
    if state in ("retry", "archived", "pending"):
        bench.db.hset(keys.task("default", "k"), mapping={"attempts": b"..", "lost": 2})


def behind(bench: QueueBench) -> bytes | None:
    kept: bytes | None = bench.db.hget(keys.again("default"), "k")
    return kept


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("policy", POLICIES)
def test_each_state_by_each_policy(bench: QueueBench, state: str, policy: str) -> None:
    let_be(bench, state)
    places, expected = bench.places(), TABLE[state][POLICIES.index(policy)]
    at = NOW_S + 90 if policy == "postpone" else 0
    found = put_one(bench, new(policy, at=at))
    assert (found.outcome if isinstance(found, Found) else found) == expected
    stored = bench.message("k").payload
    if expected == PUT:
        where = "scheduled" if at else "pending"
        assert bench.places() == {where: ["k"]}
        assert set(bench.task("k")) == {"msg", "state"} | ({"pending_since"} if where == "pending" else set())
        assert bench.task("k")["state"].decode() == where
        assert stored == b"new"
    elif expected in (KEPT, CONFLICT):
        assert (bench.places(), stored, behind(bench)) == (places, b"old", None)
        assert found == CONFLICT or state in ("moving", found.state)
    elif expected == RERUN:
        assert (bench.places(), stored) == (places, b"old")
        assert behind(bench) == (f"{at or ''}::").encode() + new(policy).message
    else:
        assert (bench.places(), stored, behind(bench)) == (places, b"new", None)
        assert bench.task("k")["state"].decode() == state == found.state
        assert not {"attempts", "lost"} & set(bench.task("k"))  # those of the old one
        if state != "pending":
            assert bench.scores(state) == {"k": NOW_S + 90 if expected == POSTPONED else LATER}


def test_a_postponed_one_runs_by_the_latest_time_that_the_first_one_gave(bench: QueueBench) -> None:
    first = put_one(bench, new("postpone", b"1", NOW_S + 5, NOW_S + 12))
    assert first == Found(PUT)
    assert put_one(bench, new("postpone", b"2", NOW_S + 9, NOW_S + 16)) == Found(
        POSTPONED, TaskState.SCHEDULED, NOW_S + 9
    )
    assert put_one(bench, new("postpone", b"3", NOW_S + 15, NOW_S + 22)).run_at_s == NOW_S + 12
    assert bench.scores("scheduled") == {"k": NOW_S + 12}
    assert bench.message("k").payload == b"3"


def test_a_latest_time_that_comes_with_a_later_one_holds_from_then_on(bench: QueueBench) -> None:
    let_be(bench, "scheduled")
    put(bench, new("postpone", at=NOW_S + 70, latest=NOW_S + 80))
    put(bench, new("postpone", at=NOW_S + 90, latest=NOW_S + 99))
    assert bench.scores("scheduled") == {"k": NOW_S + 80}


def test_a_time_that_is_past_means_now(bench: QueueBench) -> None:
    let_be(bench, "scheduled")
    assert put_one(bench, new("postpone")) == Found(POSTPONED, TaskState.SCHEDULED, NOW_S)
    assert bench.scores("scheduled") == {"k": NOW_S}


def test_several_of_one_call_see_each_other(bench: QueueBench) -> None:
    found = put(bench, new("rerun", b"1"), new("keep", b"2"), new("replace", b"3"))
    assert [one.outcome for one in found] == [PUT, KEPT, REPLACED]
    assert bench.places() == {"pending": ["k"]}
    assert bench.message("k").payload == b"3"


def test_tasks_to_keep_before_and_behind_others_are_told_in_order(bench: QueueBench) -> None:
    let_be(bench, "pending")
    other = NewTask("other", message("other"), terms=KeyTerms("keep", "mark-3", 0))
    found = put(bench, new("keep"), other, new("keep"), new("replace"), other)
    assert [one.outcome for one in found] == [KEPT, PUT, KEPT, REPLACED, KEPT]


def test_a_call_that_finds_only_tasks_to_keep_reads_their_states(bench: QueueBench) -> None:
    let_be(bench, "pending")
    put(bench, new("keep"))  # the script is known from then on
    bench.db.config_resetstat()
    put(bench, new("keep"), new("keep"))
    calls = {name: stat["calls"] for name, stat in bench.db.info("commandstats").items()}
    assert calls.items() >= {"cmdstat_hget": 2, "cmdstat_evalsha": 1}.items()
    assert calls.keys() <= {"cmdstat_hget", "cmdstat_evalsha", "cmdstat_config|resetstat", "cmdstat_info"}


def test_the_forwarders_hear_of_an_earlier_time_only(bench: QueueBench) -> None:
    channel = bench.db.pubsub()
    channel.subscribe(keys.due_channel("default"))
    channel.get_message(timeout=5)
    put(bench, new("postpone", at=NOW_S + 9))
    put(bench, new("postpone", at=NOW_S + 20))
    put(bench, new("postpone", at=NOW_S + 7))
    heard = [channel.get_message(timeout=5)["data"] for _ in range(2)]
    assert heard == [str(NOW_S + 9).encode(), str(NOW_S + 7).encode()]
    channel.close()


@pytest.mark.parametrize("state", ["none", "completed", "archived"])
def test_what_waits_behind_a_run_is_put_once_it_has_ended(bench: QueueBench, state: str) -> None:
    let_be(bench, "active")
    put(bench, new("rerun", b"1"), new("rerun", b"2"))
    again = put_again("default", ["k", "other"], NOW_NS)
    assert bench.run(again) == 0  # it still runs
    bench.db.flushdb()
    let_be(bench, state)
    bench.db.hset(keys.again("default"), "k", b"::" + new("rerun", b"2").message)
    assert bench.run(list_again("default")) == [b"k"]
    assert (bench.run(again), bench.run(again)) == (1, 0)
    assert (bench.places(), bench.message("k").payload) == ({"pending": ["k"]}, b"2")
    assert bench.run(list_again("default")) == []


def test_a_call_puts_no_more_bytes_than_hold_redis_for_moments(bench: QueueBench) -> None:
    large = {one: b"::" + message(one, payload=bytes(200_000)) for one in ("a", "b", "c")}
    bench.db.hset(keys.again("default"), mapping=large)
    again = put_again("default", ["a", "b", "c"], NOW_NS)
    assert (bench.run(again), bench.run(list_again("default"))) == (2, [b"c"])
    assert (bench.run(again), bench.places()) == (1, {"pending": ["c", "b", "a"]})


@pytest.mark.parametrize("state", ["retry", "pending", "scheduled"])
def test_a_task_that_waits_again_gets_the_newer_message(bench: QueueBench, state: str) -> None:
    let_be(bench, state)
    places = bench.places()
    bench.db.hset(keys.again("default"), "k", b"::" + new("rerun").message)
    assert bench.run(put_again("default", ["k"], NOW_NS)) == 1
    assert (bench.places(), bench.message("k").payload, behind(bench)) == (places, b"new", None)


def test_a_postponed_one_behind_a_run_waits_for_its_time_and_not_beyond_the_latest(bench: QueueBench) -> None:
    let_be(bench, "active")
    put(bench, new("postpone", b"1", NOW_S + 5, NOW_S + 12))
    put(bench, new("postpone", b"2", NOW_S + 15, NOW_S + 22))
    bench.db.delete(bench.key("active"), bench.key("lease"), keys.task("default", "k"))
    bench.run(put_again("default", ["k"], NOW_NS))
    assert (bench.scores("scheduled"), bench.message("k").payload) == ({"k": NOW_S + 12}, b"2")


@pytest.mark.parametrize(("state", "policy"), [("none", "keep"), ("pending", "replace"), ("retry", "rerun")])
def test_a_newer_one_drops_what_waits_behind_a_run(bench: QueueBench, state: str, policy: str) -> None:
    """A Go server has ended the run, and the next one is enqueued before any server of ours has looked."""
    let_be(bench, state)
    bench.db.hset(keys.again("default"), "k", b"::" + new("rerun", b"older").message)
    assert put_one(bench, new(policy, b"newest")).outcome == (PUT if state == "none" else REPLACED)
    bench.run(put_again("default", ["k"], NOW_NS))
    assert (bench.message("k").payload, behind(bench)) == (b"newest", None)


def test_a_lost_task_runs_again_with_the_newer_message(bench: QueueBench) -> None:
    let_be(bench, "active")
    put(bench, new("rerun"))
    guard = Guard(OURS, expired_at=NOW_S + 100)
    bench.run(put_back("default", [PutBack("k", message("k", payload=b"old"))], NOW_NS, guard))
    bench.run(put_again("default", ["k"], NOW_NS))
    assert (bench.places(), bench.message("k").payload) == ({"pending": ["k"]}, b"new")


def test_a_lost_task_gets_the_newer_message_though_redis_has_forgotten_how_to_put_it_back(bench: QueueBench) -> None:
    let_be(bench, "active")
    put(bench, new("rerun"))
    bench.db.script_flush()
    bench.run(put_again("default", ["k"], NOW_NS))  # the task still runs; Redis knows this script from now on
    lost = PutBack("k", message("k", payload=b"old"))
    guard = Guard(OURS, expired_at=NOW_S + 100)
    bench.drive(together(put_back("default", [lost], NOW_NS, guard), put_again("default", ["k"], NOW_NS)))
    assert (bench.places(), bench.message("k").payload, behind(bench)) == ({"pending": ["k"]}, b"new", None)


@pytest.mark.parametrize("state", ["none", "active"])
def test_a_repeated_call_finds_what_it_has_put(bench: QueueBench, state: str) -> None:
    let_be(bench, state)
    put(bench, new("rerun"))
    before = bench.places(), bench.task("k"), behind(bench)
    (found,) = put(bench, new("rerun"), is_repeat=True)
    assert found.is_repeat
    assert found.outcome == (PUT if state == "none" else RERUN)
    assert (bench.places(), bench.task("k"), behind(bench)) == before


def test_a_repeated_call_of_which_nothing_is_found_puts_the_task(bench: QueueBench) -> None:
    let_be(bench, "pending")
    (found,) = put(bench, new("replace"), is_repeat=True)
    assert (found.outcome, bench.message("k").payload) == (REPLACED, b"new")


def follow(flow: Flow[Any], *answers: Any) -> tuple[list[bool], Any]:
    """Answer each step of a flow; return which were repeats, and what it returns."""
    asked = []
    step = next(flow)
    try:
        for answer in answers:
            while isinstance(step, (Pause, Soon)):
                step = next(flow)
            assert isinstance(step, tuple)
            asked.append(step[0].args[3] == 4)
            step = flow.send([answer])
        while True:
            step = next(flow)
    except StopIteration as end:
        return asked, end.value


def test_after_a_lost_reply_the_call_is_repeated_as_one() -> None:
    lost = BrokerConnectionError("cut", operation="put_keyed", maybe_applied=True)
    away = BrokerConnectionError("away", operation="put_keyed")
    found = [Found(PUT, is_repeat=True)]
    asked, report = follow(enqueue_batches((batch(new("keep")),), ()), lost, away, found)
    assert (asked, report.outcomes) == ([False, True, True], [found])


def test_an_open_outcome_is_the_error_of_the_lost_reply() -> None:
    lost = BrokerConnectionError("cut", operation="put_keyed", maybe_applied=True)
    away = BrokerConnectionError("away", operation="put_keyed")
    _, report = follow(enqueue_batches((batch(new("keep")),), ()), lost, *[away] * 3)
    assert report.outcomes == [[lost]]
    assert lost.__cause__ is away
