"""Replies that never come: what was enqueued is there once and is called a success, whatever was cut, and where."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fastq import (
    AsyncClient,
    BrokerConnectionError,
    BrokerError,
    BrokerTimeoutError,
    Client,
    DuplicateTaskError,
    EnqueueResults,
    Task,
    TaskIDConflictError,
    TaskInfo,
    TaskState,
)
from fastq.broker.operations.enqueue import register_queue
from fastq.broker.scripts import SCRIPTS
from fastq.broker.transport.blocking import BlockingBroker, NodeTransport
from tests.faulty_proxy import Act, Fault, FaultyProxy, faulty_proxy
from tests.redis_servers import RedisServer
from tests.waiting import PATIENCE_S, wait_until

CUT = ("enqueue", "enqueue_limited", "schedule", "add_to_group")
TASK_KEYS = "asynq:{default}:t:*"
GIVE_UP_S = 1.0
"""Ample for a machine that is busy; only the tests of silence wait for it."""


@pytest.fixture(params=["Client", "AsyncClient"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass
class Setup:
    """A Redis that knows the scripts, the proxy in front of it, and the kind of client to use."""

    db: Redis
    proxy: FaultyProxy
    way: str
    give_up_s: float | None = None

    def run(self, call: Callable[[Any], Any]) -> Any:
        """Call something on a new client that goes through the proxy.

        With ``give_up_s`` it uses a redis-py client that waits no longer than that, else it makes its connections.
        """
        if self.way == "Client":
            return self._run_blocking(call)
        return asyncio.run(self._run_on_a_loop(call))

    def _run_blocking(self, call: Callable[[Client], Any]) -> Any:
        if self.give_up_s is None:
            with Client(self.proxy.url) as client:
                return call(client)
        with Redis(port=self.proxy.port, socket_timeout=self.give_up_s, retry=Retry(NoBackoff(), 0)) as given:
            return call(Client(given))

    async def _run_on_a_loop(self, call: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
        if self.give_up_s is None:
            async with AsyncClient(self.proxy.url) as client:
                return await call(client)
        retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
        async with redis.asyncio.Redis(port=self.proxy.port, socket_timeout=self.give_up_s, retry=retry) as given:
            return await call(AsyncClient(given))

    def fail(self, command: str, act: Act, **how: Any) -> None:
        self.proxy.faults.append(Fault(command, act, **how))

    def task_ids(self) -> list[str]:
        found: Any = self.db.keys(TASK_KEYS)
        return sorted(key.decode().removeprefix("asynq:{default}:t:") for key in found)

    def places(self) -> list[str]:
        """Name the id of every entry in every list and set, twice if it is there twice."""
        ids: list[Any] = list(self.db.lrange("asynq:{default}:pending", 0, -1))
        ids += self.db.zrange("asynq:{default}:scheduled", 0, -1)
        ids += self.db.zrange("asynq:{default}:g:g1", 0, -1)
        return sorted(task_id.decode() for task_id in ids)

    def scripts_seen(self) -> int:
        return sum(name in {"EVALSHA", "EVAL"} for name in self.proxy.names_seen())


@pytest.fixture
def setup(db: Redis, shared_server: RedisServer, way: str) -> Iterator[Setup]:
    for name in CUT:
        db.script_load(SCRIPTS[name].text)
    with faulty_proxy(shared_server.socket_path) as proxy:
        yield Setup(db, proxy, way)


MIXED = [
    Task("t", b"1", task_id="a"),
    Task("t", b"2", task_id="b", process_in=60),
    Task("t", b"3", task_id="c", group="g1"),
    Task("t", b"4", task_id="d", unique=60),
]

OPERATIONS: dict[str, tuple[list[str], Callable[[Any], Any]]] = {
    "pending": (["a"], lambda client: client.enqueue("t", b"x", task_id="a")),
    "scheduled": (["a"], lambda client: client.enqueue("t", b"x", task_id="a", process_in=60)),
    "group": (["a"], lambda client: client.enqueue("t", b"x", task_id="a", group="g1")),
    "unique": (["a"], lambda client: client.enqueue("t", b"x", task_id="a", unique=60)),
    "unique scheduled": (["a"], lambda client: client.enqueue("t", b"x", task_id="a", unique=60, process_in=60)),
    "unique group": (["a"], lambda client: client.enqueue("t", b"x", task_id="a", unique=60, group="g1")),
    "many": (
        ["a", "b", "c"],
        lambda client: client.enqueue_many([Task("t", name.encode(), task_id=name) for name in "abc"]),
    ),
    "many of all kinds": (["a", "b", "c", "d"], lambda client: client.enqueue_many(MIXED)),
}
"""What is called, and the ids of the tasks that must then be there."""


def infos_of(result: TaskInfo | EnqueueResults) -> list[Any]:
    return [result] if isinstance(result, TaskInfo) else list(result)


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        *(
            (name, act)
            for name in OPERATIONS
            for act in (Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY, Act.CUT_IN_REPLY)
        ),
        ("unique", Act.SWALLOW),
        ("many of all kinds", Act.SWALLOW),
    ],
)
def test_a_lost_reply_costs_nothing(operation: str, act: Act, setup: Setup) -> None:
    ids, call = OPERATIONS[operation]
    setup.give_up_s = GIVE_UP_S if act is Act.SWALLOW else None
    # One reply of several cannot be missing from a stream: the next would be taken for it.
    setup.fail("EVALSHA", act, times=3 if act is Act.SWALLOW and operation.startswith("many") else 1)
    infos = infos_of(setup.run(call))
    assert [info.id for info in infos if isinstance(info, TaskInfo)] == ids
    assert setup.task_ids() == ids
    assert setup.places() == ids


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_chunk_may_lose_any_of_its_replies(skip: int, setup: Setup) -> None:
    """Cut at the first, second, third script of the round trip, and with it all that follow."""
    ids, call = OPERATIONS["many of all kinds"]
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY, skip=skip)
    results = setup.run(call)
    assert results.enqueued == len(ids)
    assert setup.task_ids() == setup.places() == ids
    assert not setup.proxy.faults[0].times, "the cut came"


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_part_of_a_reply_is_no_reply(kept: int, setup: Setup) -> None:
    setup.fail("EVALSHA", Act.CUT_IN_REPLY, bytes_kept=kept)
    setup.run(OPERATIONS["pending"][1])
    assert setup.places() == ["a"]
    assert setup.scripts_seen() == 1


def test_what_was_done_is_not_sent_again(setup: Setup) -> None:
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY)
    setup.run(OPERATIONS["many"][1])
    assert setup.proxy.names_seen() == ["SADD", "EVALSHA", "HGET", "HGET", "HGET"]


def test_what_was_not_done_is_sent_again_after_a_look(setup: Setup) -> None:
    setup.fail("EVALSHA", Act.CUT_BEFORE_REQUEST)
    setup.run(OPERATIONS["many"][1])
    assert setup.proxy.names_seen() == ["SADD", "HGET", "HGET", "HGET", "EVALSHA"]


def test_a_look_whose_reply_is_lost_is_taken_again(setup: Setup) -> None:
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY)
    setup.fail("HGET", Act.CUT_BEFORE_REPLY, times=3)
    setup.run(OPERATIONS["pending"][1])
    assert setup.proxy.names_seen() == ["SADD", "EVALSHA", "HGET", "HGET", "HGET", "HGET"]
    assert setup.places() == ["a"]


def test_a_lost_registration_is_sent_again(setup: Setup) -> None:
    setup.fail("SADD", Act.CUT_BEFORE_REQUEST, times=2)
    setup.run(OPERATIONS["pending"][1])
    assert setup.places() == ["a"]
    assert setup.db.smembers("asynq:queues") == {b"default"}
    assert setup.scripts_seen() == 1


def test_a_second_try_that_is_lost_too_is_looked_for_too(setup: Setup) -> None:
    setup.fail("EVALSHA", Act.CUT_BEFORE_REQUEST)
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY)
    setup.run(OPERATIONS["unique"][1])
    assert setup.proxy.names_seen() == ["SADD", "HGET", "EVALSHA", "HGET"]
    assert setup.places() == ["a"]


def test_a_first_try_that_arrives_after_the_look_is_no_conflict(setup: Setup) -> None:
    """The task is not there, is sent again, and meets the first request, which some router had kept."""
    setup.fail("EVALSHA", Act.HOLD)
    setup.fail("HGET", Act.PASS, then=setup.proxy.release)
    info = setup.run(OPERATIONS["unique"][1])
    assert info.state is TaskState.PENDING
    assert setup.proxy.names_seen() == ["SADD", "HGET", "EVALSHA", "EVALSHA", "HGET"]
    assert setup.places() == ["a"]


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY])
@pytest.mark.parametrize("other", [("t", b"other"), ("other", b"x")])
def test_a_real_conflict_is_still_a_conflict(other: tuple[str, bytes], act: Act, setup: Setup) -> None:
    Client(setup.db).enqueue(*other, task_id="a")
    setup.fail("EVALSHA", act)
    with pytest.raises(TaskIDConflictError):
        setup.run(OPERATIONS["pending"][1])
    assert setup.places() == ["a"]


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY])
def test_the_task_of_another_submit_is_a_conflict(act: Act, setup: Setup) -> None:
    """Its handle would wait for a task that another program has submitted."""
    with Client(setup.db) as other:
        other.submit("t", b"x", task_id="a")
        setup.fail("EVALSHA", act)
        with pytest.raises(TaskIDConflictError):
            setup.run(lambda client: client.submit("t", b"x", task_id="a"))
    setup.db.delete("asynq:{default}:t:a", "asynq:{default}:pending")
    setup.fail("EVALSHA", act)
    assert setup.run(lambda client: client.submit("t", b"x", task_id="a")).id == "a"
    assert setup.places() == ["a"]


def test_a_task_that_cannot_be_decoded_is_not_ours(setup: Setup) -> None:
    setup.db.hset("asynq:{default}:t:a", mapping={"msg": b"\xff", "state": "pending"})
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY)
    with pytest.raises(TaskIDConflictError):
        setup.run(OPERATIONS["pending"][1])


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY])
def test_a_real_duplicate_is_still_a_duplicate(act: Act, setup: Setup) -> None:
    Client(setup.db).enqueue("t", b"x", task_id="first", unique=60)
    setup.fail("EVALSHA", act)
    with pytest.raises(DuplicateTaskError):
        setup.run(OPERATIONS["unique"][1])
    assert setup.places() == ["first"]


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY, Act.HOLD])
def test_an_id_given_twice_in_one_call_is_a_conflict_once(act: Act, setup: Setup) -> None:
    setup.fail("EVALSHA", act)
    if act is Act.HOLD:
        setup.fail("HGET", Act.PASS, skip=2, then=setup.proxy.release)
    twice = [Task("t", b"x", task_id="a"), Task("t", b"y", task_id="b"), Task("t", b"x", task_id="a")]
    results: EnqueueResults = setup.run(lambda client: client.enqueue_many(twice))
    assert [type(result) for result in results] == [TaskInfo, TaskInfo, TaskIDConflictError]
    assert setup.places() == ["a", "b"]


def test_conflicts_and_duplicates_of_a_chunk_stand_at_their_tasks(setup: Setup) -> None:
    Client(setup.db).enqueue("t", b"other", task_id="b")
    Client(setup.db).enqueue("u", task_id="first", unique=60)
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY)
    tasks = [Task("t", b"", task_id="a"), Task("t", b"", task_id="b"), Task("u", task_id="c", unique=60)]
    results = setup.run(lambda client: client.enqueue_many(tasks))
    assert [type(result) for result in results] == [TaskInfo, TaskIDConflictError, DuplicateTaskError]
    assert setup.places() == ["a", "b", "first"]


def test_a_task_that_has_already_run_and_gone_is_enqueued_again(setup: Setup) -> None:
    """At least once: that it ran cannot be known any more."""
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY, then=lambda: setup.db.delete("asynq:{default}:t:a"))
    assert setup.run(OPERATIONS["pending"][1]).id == "a"
    assert setup.scripts_seen() == 2


def test_a_task_that_has_moved_on_is_found_in_its_new_state(setup: Setup) -> None:
    key = "asynq:{default}:t:a"
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY, then=lambda: setup.db.hset(key, "state", "active"))
    assert setup.run(OPERATIONS["pending"][1]).id == "a"
    assert setup.scripts_seen() == 1


def test_a_redis_that_is_gone_for_good_leaves_the_outcome_open(setup: Setup) -> None:
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY, then=setup.proxy.vanish)
    with pytest.raises(BrokerConnectionError) as caught:
        setup.run(OPERATIONS["pending"][1])
    assert caught.value.maybe_applied
    assert caught.value.operation == "enqueue"
    assert str(caught.value).startswith(
        f"enqueue: the connection to Redis at 127.0.0.1:{setup.proxy.port} broke before"
    )
    assert "the outcome is not known" in str(caught.value)
    assert str(caught.value.__cause__).startswith("HGET: cannot reach Redis")


def test_what_cannot_even_be_sent_was_not_applied(setup: Setup) -> None:
    """Not the first call after the break, nor one that finds a connection which broke a moment ago."""

    def call_after_call(client: Client) -> list[BrokerError]:
        client.enqueue("t", b"x")
        setup.proxy.vanish()
        return [error_of(lambda: client.enqueue("t", b"x")) for _ in range(3)]

    async def call_after_call_on_a_loop(client: AsyncClient) -> list[BrokerError]:
        await client.enqueue("t", b"x")
        setup.proxy.vanish()
        errors: list[BrokerError] = []
        for _ in range(3):
            with pytest.raises(BrokerConnectionError) as caught:
                await client.enqueue("t", b"x")
            errors.append(caught.value)
        return errors

    errors = setup.run(call_after_call if setup.way == "Client" else call_after_call_on_a_loop)
    assert [error.maybe_applied for error in errors[1:]] == [False, False]
    assert all(str(error).startswith("enqueue: cannot reach Redis at 127.0.0.1:") for error in errors[1:])


def error_of(act: Callable[[], object]) -> BrokerError:
    with pytest.raises(BrokerConnectionError) as caught:
        act()
    return caught.value


def test_a_redis_that_is_gone_for_good_stops_enqueue_many_with_what_is_known(setup: Setup) -> None:
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY, skip=1, then=setup.proxy.vanish)
    tasks = (Task("t", b"x", task_id=f"{n:04}") for n in range(2000))
    with pytest.raises(BrokerConnectionError) as caught:
        setup.run(lambda client: client.enqueue_many(tasks))
    assert caught.value.maybe_applied
    results = caught.value.results
    assert isinstance(results, EnqueueResults)
    assert (len(results), results.enqueued) == (1000, 500)
    assert results[500] is caught.value
    # One chunk more was composed while Redis had the second, and was not sent.
    assert next(tasks).options["task_id"] == "1500"
    assert caught.value.__notes__ == [
        "enqueue_many: 500 tasks were enqueued before this; the error's results attribute tells of the 1000 tasks that "
        "were tried, the rest was not"
    ]


def test_a_redis_that_goes_silent_is_asked_once_and_once_more_on_a_new_connection(setup: Setup) -> None:
    setup.give_up_s = GIVE_UP_S
    for command in ("SADD", "EVALSHA", "HGET"):
        setup.fail(command, Act.SWALLOW, times=None)
    with pytest.raises(BrokerTimeoutError) as caught:
        setup.run(OPERATIONS["pending"][1])
    assert caught.value.maybe_applied
    assert "did not answer in time; whether it carried out the operation is not known" in str(caught.value)

    def seen() -> tuple[int, int]:
        names = setup.proxy.names_seen()
        return names.count("SADD"), names.count("HGET")

    wait_until(lambda: seen() == (1, 1))  # the client gives up what the proxy may be about to read
    setup.proxy.close()
    assert seen() == (1, 1)
    assert setup.scripts_seen() <= 1
    assert setup.proxy.connections == 2


def test_a_redis_that_answers_questions_and_takes_no_writes_is_given_up_after_one_more(setup: Setup) -> None:
    """As during CLIENT PAUSE WRITE: each look says that the task is missing, and it is sent again."""
    setup.give_up_s = GIVE_UP_S
    setup.db.client_pause(int(PATIENCE_S * 1000), all=False)
    try:
        with pytest.raises(BrokerTimeoutError) as caught:
            setup.run(OPERATIONS["pending"][1])
    finally:
        setup.db.client_unpause()
    assert caught.value.maybe_applied
    assert setup.proxy.names_seen().count("HGET") == 1


def test_a_queue_whose_registration_was_lost_is_registered_once_its_task_is_settled(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.give_up_s = GIVE_UP_S
    silence = Fault("SADD", Act.SWALLOW, times=None)
    setup.fail("EVALSHA", Act.SWALLOW)
    setup.proxy.faults += [silence, Fault("HGET", Act.PASS, then=lambda: setup.proxy.faults.remove(silence))]
    setup.run(OPERATIONS["pending"][1])
    assert setup.db.smembers("asynq:queues") == {b"default"}
    assert setup.places() == ["a"]
    assert "could not be added" not in caplog.text


def test_a_registration_that_is_refused_again_is_told_once(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    setup.fail("SADD", Act.ANSWER, times=None, answer=b"-ERR no\r\n")
    setup.run(OPERATIONS["pending"][1])
    assert caplog.text.count("queue 'default' could not be added to asynq:queues") == 1


def test_a_conflict_with_nothing_known_of_it_is_not_called_one(setup: Setup) -> None:
    """Whenever the flow looks there is nothing, whenever it sends there is something: it says that it cannot tell."""
    key = "asynq:{default}:t:a"
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY, then=lambda: setup.db.delete(key))
    setup.fail("HGET", Act.PASS, times=3, then=lambda: setup.db.hset(key, "state", "pending"))
    setup.fail("EVALSHA", Act.PASS, times=3, then=lambda: setup.db.delete(key))
    with pytest.raises(BrokerConnectionError) as caught:
        setup.run(OPERATIONS["pending"][1])
    assert caught.value.maybe_applied


def test_a_script_that_redis_forgot_is_sent_as_text_in_the_same_call(setup: Setup) -> None:
    setup.db.script_flush()
    setup.run(OPERATIONS["pending"][1])
    assert setup.places() == ["a"]
    assert setup.proxy.names_seen() == ["SADD", "EVALSHA", "EVAL"]


def test_scripts_that_redis_forgot_heal_in_a_pipeline_too(setup: Setup) -> None:
    setup.db.script_flush()
    ids, call = OPERATIONS["many of all kinds"]
    assert setup.run(call).enqueued == 4
    assert setup.places() == ids
    assert setup.proxy.names_seen() == ["SADD", *["EVALSHA"] * 3, *["EVAL"] * 3]


def test_a_script_forgotten_between_two_calls_heals(setup: Setup) -> None:
    def twice(client: Client) -> None:
        client.enqueue("t", b"x", task_id="a")
        setup.db.script_flush()
        client.enqueue("t", b"x", task_id="b")

    async def twice_on_a_loop(client: AsyncClient) -> None:
        await client.enqueue("t", b"x", task_id="a")
        setup.db.script_flush()
        await client.enqueue("t", b"x", task_id="b")

    setup.run(twice if setup.way == "Client" else twice_on_a_loop)
    assert setup.proxy.names_seen() == ["SADD", "EVALSHA", "EVALSHA", "EVAL"]
    assert setup.places() == ["a", "b"]


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY])
def test_the_reply_to_a_script_sent_as_text_may_be_lost_too(act: Act, setup: Setup) -> None:
    setup.db.script_flush()
    setup.fail("EVAL", act)
    ids, call = OPERATIONS["many of all kinds"]
    assert setup.run(call).enqueued == 4
    assert setup.places() == ids


def test_redis_counts_each_script_once(setup: Setup) -> None:
    """Ask the server, not the proxy, how often it was called."""
    setup.db.config_resetstat()
    setup.fail("EVALSHA", Act.CUT_BEFORE_REPLY)
    setup.run(OPERATIONS["pending"][1])
    stats: dict[str, Any] = setup.db.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 1
    assert "cmdstat_eval" not in stats


@contextmanager
def broker_at(proxy: FaultyProxy) -> Iterator[BlockingBroker]:
    with Redis(port=proxy.port, socket_timeout=PATIENCE_S, retry=Retry(NoBackoff(), 0)) as given:
        yield BlockingBroker(NodeTransport(given.connection_pool))


def test_an_idempotent_operation_is_sent_four_times_at_most(db: Redis, shared_server: RedisServer) -> None:
    fault = Fault("SADD", Act.CUT_BEFORE_REPLY, times=None)
    with faulty_proxy(shared_server.socket_path, fault) as proxy, broker_at(proxy) as broker:
        with pytest.raises(BrokerConnectionError) as caught:
            broker.run(register_queue("default"))
        assert caught.value.maybe_applied
        assert proxy.names_seen() == ["SADD"] * 4


def test_only_what_was_lost_is_sent_again(db: Redis, shared_server: RedisServer) -> None:
    fault = Fault("SADD", Act.CUT_BEFORE_REPLY, skip=1)
    with faulty_proxy(shared_server.socket_path, fault) as proxy, broker_at(proxy) as broker:
        assert broker.run_many([register_queue(queue) for queue in "abc"]) == [1, 0, 1]
        assert [words[2] for words in proxy.seen if words[0] == b"SADD"] == [b"a", b"b", b"b", b"c"]


def test_a_client_with_retries_of_its_own_does_not_send_twice(db: Redis, shared_server: RedisServer) -> None:
    """redis-py re-sends by default; a client that was given brings that along."""
    db.script_load(SCRIPTS["enqueue_limited"].text)
    fault = Fault("EVALSHA", Act.CUT_BEFORE_REPLY)
    with faulty_proxy(shared_server.socket_path, fault) as proxy, Redis(port=proxy.port) as given:
        assert given.get_retry() is not None
        Client(given).enqueue("t", b"x")
        assert proxy.names_seen() == ["SADD", "EVALSHA", "HGET"]
    assert db.llen("asynq:{default}:pending") == 1


def test_a_connection_that_died_in_the_pool_is_replaced_unnoticed(setup: Setup) -> None:
    def twice(client: Client) -> None:
        client.enqueue("t", b"x", task_id="a")
        setup.db.client_kill_filter(_type="normal", skipme=True)
        client.enqueue("t", b"x", task_id="b")

    async def twice_on_a_loop(client: AsyncClient) -> None:
        await client.enqueue("t", b"x", task_id="a")
        setup.db.client_kill_filter(_type="normal", skipme=True)
        await client.enqueue("t", b"x", task_id="b")

    setup.run(twice if setup.way == "Client" else twice_on_a_loop)
    assert setup.places() == ["a", "b"]


def test_a_cancelled_call_does_not_leave_its_reply_to_the_next(db: Redis, shared_server: RedisServer) -> None:
    """The reply comes after all, as the first thing on a connection that the next call must not get."""

    async def run() -> None:
        carried_out = asyncio.Event()
        loop = asyncio.get_running_loop()
        late = Fault("EVALSHA", Act.DELAY, then=lambda: loop.call_soon_threadsafe(carried_out.set))
        with faulty_proxy(shared_server.socket_path) as proxy:
            async with AsyncClient(proxy.url) as client:
                await client.enqueue("t", b"0", task_id="taken")
                proxy.faults.append(late)
                call = asyncio.create_task(client.enqueue("t", b"1", task_id="a"))
                await carried_out.wait()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                following = asyncio.create_task(client.enqueue("t", b"2", task_id="taken"))
                await asyncio.sleep(0)
                late.until.set()
                with pytest.raises(TaskIDConflictError):
                    await following

    db.script_load(SCRIPTS["enqueue_limited"].text)
    asyncio.run(run())
