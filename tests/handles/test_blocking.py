"""Handles of ``Client``: what a wait returns and raises, and that no end is missed."""

import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from redis import BlockingConnectionPool, Redis, UnixDomainSocketConnection

from fastq import (
    App,
    BrokerConnectionError,
    Client,
    DuplicateTaskError,
    Handle,
    Task,
    TaskFailedError,
    TaskGoneError,
    TaskState,
)
from fastq.handles.waits import Waits
from fastq.running import CURRENT
from fastq.wire import keys
from fastq.wire.inbox import EndKind, TaskEnd, encode_ends
from fastq.wire.messages import ServerInfoMessage
from fastq.wire.records import encode_server_info
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.handles.site import GARBLED, QUEUE, Site
from tests.redis_servers import RedisServer
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def site(db: Redis) -> Site:
    return Site(db)


class Waiting:
    """A call that waits in a thread of its own."""

    def __init__(self, call: Any, *args: Any) -> None:
        self.outcome: Any = None
        self._thread = Thread(target=self._run, args=(call, *args))
        self._thread.start()

    def _run(self, call: Any, *args: Any) -> None:
        try:
            self.outcome = call(*args)
        except Exception as error:  # noqa: BLE001 - the test sees it
            self.outcome = error

    def ended(self) -> Any:
        self._thread.join()
        return self.outcome


def waits_of(client: Client) -> list[Any]:
    listener = client._waiter.own.listener
    return [] if listener is None else listener.waits.tasks


def begin(client: Client, call: Any, *args: Any) -> Waiting:
    """Begin a wait, and return once it is looked for."""
    waiting = Waiting(call, *args)
    wait_until(lambda: waits_of(client))
    return waiting


def test_a_message_ends_a_wait_and_the_subscription_ends_with_the_client(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 1e6
    handle = client.submit("t", task_id="a")
    assert (handle.id, handle.queue, handle.state()) == ("a", QUEUE, TaskState.PENDING)
    waiting = begin(client, handle.result)
    site.end("a", result=b"7", tells=False)
    # The wait has looked or will look. Either way this is news or no harm.
    assert site.tell(site.db.hget(keys.task(QUEUE, "a"), "msg"), "completed", b"7") == 1
    assert waiting.ended() == handle.result() == b"7"
    assert waits_of(client) == []
    client.close()
    wait_until(lambda: site.listeners() == [])


def test_a_task_that_has_ended_needs_no_message(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 1e6
    done, failed, plain, gone = client.submit_many([Task("t", task_id=name) for name in "abcd"])
    site.end("a", tells=False)
    site.end("b", "archived", error="ValueError: too small (jobs.py:7)", tells=False)
    site.end("c", "archived", error="dial tcp: refused", tells=False)
    site.end("d", "gone", tells=False)
    assert done.result() is None
    with pytest.raises(TaskFailedError) as error:
        failed.result()
    assert (error.value.error_class, error.value.message) == ("ValueError", "too small")
    assert str(error.value) == "task failed: ValueError: too small (jobs.py:7) (queue='default', task_id='b')"
    with pytest.raises(TaskFailedError) as error:
        plain.result()
    assert (error.value.error_class, error.value.message) == ("", "dial tcp: refused")
    with pytest.raises(TaskGoneError, match=r"or it completed without a retention \(queue='default', task_id='d'\)$"):
        gone.result()
    with pytest.raises(TaskGoneError):
        gone.state()


def test_what_nobody_tells_is_found_by_a_look(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 0.05
    handles = [client.submit("t", task_id=name) for name in "abc"]
    waitings = [Waiting(handle.result) for handle in handles]
    wait_until(lambda: len(waits_of(client)) == 3)
    site.end("a", result=b"1", tells=False)
    site.end("b", "archived", error="ValueError: x", tells=False)
    site.end("c", "gone", tells=False)
    outcomes = [waiting.ended() for waiting in waitings]
    assert outcomes[0] == b"1"
    assert [type(outcome) for outcome in outcomes[1:]] == [TaskFailedError, TaskGoneError]


def test_a_connection_that_is_killed_costs_no_end(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 1e6
    handle, looks = client.submit("t", task_id="a"), site.looks()
    waiting = begin(client, handle.result)
    wait_until(lambda: site.looks() > looks)
    site.end("a", result=b"1", tells=False)
    site.db.client_kill_filter(_type="pubsub")
    assert waiting.ended() == b"1", "it looks once it is subscribed again"


def test_an_error_outlives_its_task_in_a_message(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 1e6
    handle = client.submit("t", task_id="a")
    message = site.db.hget(keys.task(QUEUE, "a"), "msg")
    waiting = begin(client, handle.result)
    wait_until(lambda: site.tell(message, "archived", error="KeyError: 'x' (a.py:1)"))
    # The archive may be full, so that the task is dropped at once: here it was not even there.
    error = waiting.ended()
    assert isinstance(error, TaskFailedError)
    assert (error.error_class, error.message) == ("KeyError", "'x'")


def test_a_failure_that_was_told_before_the_wait_is_known(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 1e6
    handles = client.submit_many(Task("t", task_id=name) for name in "abc")
    for name in "abc":
        message = site.db.hget(keys.task(QUEUE, name), "msg")
        assert site.tell(message, "archived", error="ValueError: full") == 1
        site.end(name, "gone", tells=False)
    wait_until(lambda: len(client._waiter.own.listener.waits._told) == 3)  # type: ignore[union-attr]  # it listens
    for wait in (handles[0].result, lambda: client.gather(handles[1:])):
        with pytest.raises(TaskFailedError, match="ValueError: full"):
            wait()


def test_a_wait_goes_on_while_the_task_is_retried_until_its_time_is_up(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 0.01
    handle = client.submit("t", task_id="a")
    site.db.hset(keys.task(QUEUE, "a"), "state", "retry")
    with pytest.raises(TimeoutError, match=r"^task a of queue 'default' has not ended within 0\.1 s$"):
        handle.result(timeout=0.1)
    with pytest.raises(TimeoutError, match=r"^1 tasks have not ended within 0\.1 s$"):
        list(client.as_completed([handle], timeout=timedelta(seconds=0.1)))
    with pytest.raises(TimeoutError, match=r"^task a of queue 'default' has not ended"):
        client.wait(QUEUE, "a", timeout=0)
    assert waits_of(client) == []
    site.end("a", result=b"1", tells=False)
    assert handle.result(timeout=0) == b"1"


def test_handles_come_as_their_tasks_end(client: Client, site: Site) -> None:
    handles = client.submit_many(Task("t", task_id=f"{number}") for number in range(1_200))
    for number in range(600):
        site.end(f"{number}", result=b"%d" % number, tells=False)
    completed = client.as_completed([*handles, handles[0]])
    first = [next(completed) for _ in range(601)]
    assert {handle.id for handle in first} == {f"{number}" for number in range(600)}
    for number in range(600, 1_200):
        site.end(f"{number}", "archived" if number == 700 else "completed", error="ValueError: 7")
    assert {handle.id for handle in completed} == {f"{number}" for number in range(600, 1_200)}
    assert client.gather(handles[:600]) == [b"%d" % number for number in range(600)]
    with pytest.raises(TaskFailedError, match="ValueError: 7"):
        client.gather(handles)
    assert waits_of(client) == []
    assert list(client.as_completed([])) == []


def test_the_handle_of_a_refused_task_raises_what_refused_it(client: Client, site: Site) -> None:
    first, second = client.submit_many([Task("t", b"x", unique=60), Task("t", b"x", unique=60)])
    site.end(first.id, tells=False)
    assert first.result() is None
    with pytest.raises(DuplicateTaskError):
        second.result()
    assert [handle.id for handle in client.as_completed([second])] == [second.id]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retention": 0}, "retention must be more than 0 for a task that is submitted: its result would not be kept"),
        ({"group": "g"}, "a task of a group, 'g', cannot be submitted: it becomes a part of another task"),
    ],
)
def test_what_could_not_be_waited_for_is_not_sent(
    client: Client, db: Redis, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        client.submit("t", **options)
    with pytest.raises(ValueError, match=f"^{message}$"):
        client.submit_many([Task("t", **options)])
    assert db.keys("*") == []


def test_a_submitted_task_is_kept_for_an_hour_or_as_long_as_it_says(client: Client, site: Site) -> None:
    more: dict[str, Any] = {"retention": 60}
    for options, kept_s in (({}, 3600), (more, 60)):
        handle = client.submit("t", headers={"a": "b"}, **options)
        message = site.message(handle.id)
        assert message.retention == kept_s
        ours = {"fastq-inbox": client._waiter.own.inbox, "fastq-submit": handle.task[2]}
        assert message.headers == {"a": "b", **ours}


def test_tasks_submitted_together_are_kept_as_each_of_them_says(client: Client, site: Site) -> None:
    own, other = Task("t", retention=60, headers={"a": "b"}), Task("t", queue=QUEUE)
    given: dict[str, Any] = {"retention": 30, "headers": {"c": "d"}}
    for tasks, options, kept in (
        ([own, other], {}, [60, 3600]),
        ([other, other], {}, [3600, 3600]),
        ([own, own], {}, [60, 60]),
        ([own, other], given, [30, 30]),
    ):
        for task, handle, kept_s in zip(tasks, client.submit_many(tasks, **options), kept, strict=True):
            message = site.message(handle.id)
            assert message.retention == kept_s
            headers = {**task.headers, **options.get("headers", {})}
            ours = {"fastq-inbox": client._waiter.own.inbox, "fastq-submit": handle.task[2]}
            assert message.headers == {**headers, **ours}
            assert "fastq-inbox" not in task.headers


def test_a_handler_is_not_let_wait(client: Client, site: Site) -> None:
    handle = client.submit("t", task_id="a")
    token = CURRENT.set(handle)  # type: ignore[arg-type]  # any task will do
    try:
        for wait in (
            handle.result,
            lambda: client.as_completed([handle]),
            lambda: client.gather([handle]),
            lambda: client.wait(QUEUE, "a"),
        ):
            with pytest.raises(
                RuntimeError, match=r"^the handler of task a cannot wait for other tasks: it would hold a"
            ):
                wait()
        assert handle.state() is TaskState.PENDING
    finally:
        CURRENT.reset(token)


def test_handles_of_another_client_are_refused(client: Client, url: str) -> None:
    with Client(url) as other, pytest.raises(ValueError, match=r"take handles of the same client, not <Handle of task"):
        client.gather([other.submit("t")])


def test_anybodys_task_can_be_waited_for(client: Client, site: Site) -> None:
    task_id = client.enqueue("t", retention=60).id
    waiting = Waiting(client.wait, QUEUE, task_id)
    site.end(task_id, result=b"7", tells=False)
    assert waiting.ended() == b"7"
    with pytest.raises(TaskGoneError):
        client.wait(QUEUE, "unknown")
    with pytest.raises(ValueError, match="queue must contain one or more"):
        client.wait("", "unknown")
    assert site.listeners() == []


def test_a_task_that_waits_is_canceled_by_deleting_it(client: Client, site: Site) -> None:
    pending, scheduled = client.submit("t", unique=60), client.submit("t", process_in=60)
    for handle in (pending, scheduled):
        handle.cancel()
        with pytest.raises(TaskGoneError):
            handle.result()
        handle.cancel()
    assert site.db.keys("asynq:*unique*") == []
    done = client.submit("t")
    site.end(done.id, result=b"1", tells=False)
    done.cancel()
    assert done.result() == b"1", "what has ended stays"


def test_a_task_that_runs_is_asked_to_stop_and_to_be_deleted(client: Client, site: Site) -> None:
    handle = client.submit("t", task_id="a")
    site.db.hset(keys.task(QUEUE, "a"), "state", "active")
    with site.db.pubsub() as listening:
        listening.subscribe("asynq:cancel:as")
        assert listening.get_message(timeout=PATIENCE_S)["type"] == "subscribe"
        handle.cancel()
        message = listening.get_message(timeout=PATIENCE_S)
    assert message["data"] == b'{"id":"a","queue":"default","outcome":"delete"}'


def test_a_closed_client_ends_its_waits_and_can_be_used_again(client: Client, site: Site) -> None:
    handle = client.submit("t", task_id="a")
    waiting = begin(client, handle.result)
    client.close()
    with pytest.raises(BrokerConnectionError, match=r"^the client was closed while it waited for a task$"):
        raise waiting.ended()
    again = begin(client, handle.result)
    site.end("a", result=b"1")
    assert again.ended() == b"1"


def test_a_forked_process_waits_for_itself(client: Client, site: Site) -> None:
    waiting = begin(client, client.submit("t", task_id="a").result)
    site.end("a")
    waiting.ended()
    inbox = client._waiter.own.inbox
    child = os.fork()
    if not child:
        try:
            handle = client.submit("t", task_id="b")
            is_another = client._waiter.own.inbox != inbox
            site.end("b", result=b"1", tells=False)
            os._exit(0 if is_another and handle.result(timeout=60) == b"1" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert client._waiter.own.inbox == inbox


def test_results_of_typed_tasks_are_what_their_functions_returned(url: str, db: Redis) -> None:
    app, site = App(url), Site(db)

    @app.task("double")
    async def double(x: int) -> set[int]:
        return {2 * x}

    @app.task("raw")
    def raw() -> bytes | None:
        return None

    @app.task("nothing")
    def nothing() -> None: ...

    @app.task("anything")
    def anything():  # type: ignore[no-untyped-def]  # so that it has no annotation
        ...

    for handle, stored, value in (
        (double.submit(7), b"[14]", {14}),
        (app.client.submit(raw.task()), b"\x00", b"\x00"),
        (raw.submit(), None, None),
        (nothing.submit(), b"null", None),
        (anything.submit(), b"[1]", [1]),
        (anything.submit(), b"\xff", b"\xff"),
    ):
        site.end(handle.id, result=stored, tells=False)
        assert handle.result() == value
    handle = double.submit(7)
    site.end(handle.id, result=b'["x"]', tells=False)
    with pytest.raises(ValueError, match=r"is not as annotated: Expected `int`, got `str` - at `\$\[0\]`$"):
        handle.result()
    app.close()


def test_a_message_that_is_garbled_is_dropped_and_the_waits_go_on(
    client: Client, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    client._waiter._look_every_s = 1e6
    waiting = begin(client, client.submit("t", task_id="a").result)
    inbox = keys.inbox_channel(client._waiter.own.inbox)
    for garbled in GARBLED:
        assert site.db.publish(inbox, garbled) == 1
    site.end("a", result=b"7")
    assert waiting.ended() == b"7"
    assert [record.getMessage()[:42] for record in caplog.records] == ["dropped a message to this client's inbox: "]


def test_a_wait_that_begins_while_the_client_is_closed_ends(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, add, is_closed, begun = client.submit("t", task_id="a"), Waits.add, Event(), list[Waits]()

    def add_late(waits: Waits, *args: Any) -> None:
        begun.append(waits)
        assert is_closed.wait(PATIENCE_S)
        add(waits, *args)

    monkeypatch.setattr(Waits, "add", add_late)
    looks = site.looks()
    waitings = [Waiting(client.wait, QUEUE, "a")]
    wait_until(lambda: site.looks() > looks)
    waitings += [Waiting(handle.result), Waiting(client.gather, [handle])]
    wait_until(lambda: len(begun) == 2)
    client.close()
    is_closed.set()
    for waiting in waitings:
        with pytest.raises(BrokerConnectionError, match=r"^the client was closed while it waited for a task$"):
            raise waiting.ended()


def test_a_failure_that_was_heard_wins_over_a_look_that_finds_no_task(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 1e6
    drive = client._broker.drive

    def drive_late(flow: Any) -> Any:
        for task_id in {task_id for _, task_id, _ in waits_of(client)}:
            site.end(task_id, "gone", tells=False)
            site.tell(messages[task_id], "archived", error="ValueError: full")
        wait_until(lambda: waits_of(client) == [])
        return drive(flow)

    handles = client.submit_many(Task("t", task_id=name) for name in "abc")
    messages = {name: site.db.hget(keys.task(QUEUE, name), "msg") for name in "abc"}
    client._broker.drive = drive_late  # type: ignore[method-assign]  # both happen before the look, and are heard
    for wait in (handles[0].result, lambda: client.gather(handles[1:])):
        with pytest.raises(TaskFailedError, match="ValueError: full"):
            wait()


def test_a_failure_is_not_that_of_a_later_task_of_the_same_id(client: Client, site: Site) -> None:
    client._waiter._look_every_s = 1e6
    for again in (client.submit, lambda _, task_id: client.submit_many([Task("t", task_id=task_id)])[0]):
        failed = client.submit("t", task_id="nightly")
        site.end("nightly", "archived", error="ValueError: old")
        wait_until(lambda: client._waiter.own.listener.waits._told)  # type: ignore[union-attr]  # it listens
        site.end("nightly", "gone", tells=False)
        later = again("t", task_id="nightly")
        later.cancel()
        with pytest.raises(TaskGoneError):
            later.result()
        with pytest.raises(TaskFailedError, match="ValueError: old"):
            failed.result()


def test_a_new_task_that_a_message_tells_of_is_not_looked_at(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.handles.collecting.NEW_WITHIN_S", PATIENCE_S)
    client._waiter._look_every_s = 1e6
    client.submit("t", task_id="first")
    wait_until(lambda: client._waiter.own.listener._look_at_s > 1e5)  # type: ignore[union-attr]  # it listens, and has looked
    handle = client.submit("t", task_id="a")
    waiting = begin(client, handle.result)
    looks = site.looks()
    site.end("a", result=b"7", tells=False)
    inbox = keys.inbox_channel(client._waiter.own.inbox)
    site.db.publish(inbox, encode_ends(QUEUE, [("a", TaskEnd(EndKind.RESULT, result=b"8"), handle.task[2])]))
    assert waiting.ended() == b"8", "the result is that in the message"
    assert site.looks() == looks


def test_after_a_long_wait_it_is_said_what_the_task_waits_for(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.handles.waits.Deadline.is_long", True)
    handle = client.submit("t", task_id="a")
    with pytest.raises(TimeoutError, match=r"within 0\.05 s: it is pending; no server serves queue 'default'$"):
        handle.result(timeout=0.05)
    info = keys.server_info("host", 1, "x")
    served = ServerInfoMessage("host", 1, "x", 1, {QUEUE: 1, "other": 2}, False, "active", None, 0)
    site.db.set(info, encode_server_info(served))
    site.db.zadd(keys.all_servers(), {info: time.time() + 60})
    with pytest.raises(TimeoutError, match=r"within 0\.05 s: it is pending$"):
        handle.result(timeout=0.05)
    site.db.delete(info)
    site.db.hset(keys.task(QUEUE, "a"), "state", "active")
    with pytest.raises(TimeoutError, match=r"within 0\.05 s: it is active$"):
        handle.result(timeout=0.05)
    site.db.delete(keys.all_servers())
    site.db.hset(keys.task(QUEUE, "a"), "state", "pending")
    site.db.set(keys.all_servers(), "no sorted set")
    with pytest.raises(TimeoutError, match=r"within 0\.05 s$"):
        handle.result(timeout=0.05)


def test_while_messages_come_handles_are_not_looked_at(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.handles.collecting.HEARD_WITHIN_S", PATIENCE_S)
    client._waiter._look_every_s = 1e6
    handles = client.submit_many(Task("t", task_id=f"{number}") for number in range(2_500))
    inbox = keys.inbox_channel(client._waiter.own.inbox)
    done = TaskEnd(EndKind.DONE)
    drive, looks = client._broker.drive, list[object]()

    def tell(flow: Any) -> Any:
        looks.append(flow.__name__)
        if looks == ["look_at"]:
            for handle in handles[:900]:
                site.db.hset(keys.task(QUEUE, handle.id), "state", "completed")
            site.db.publish(inbox, encode_ends(QUEUE, [(handle.id, done, handle.task[2]) for handle in handles]))
        return drive(flow)

    client._broker.drive = tell  # type: ignore[method-assign]  # tells of all at the first look, and does the same
    assert len(list(client.as_completed(handles))) == 2_500
    assert looks.count("look_at") == 1


def test_many_handles_are_looked_at_in_parts(client: Client, site: Site) -> None:
    handles: list[Handle[Any]] = [Handle(client._waiter, (QUEUE, f"{n}", ""), lambda data: data) for n in range(4_001)]
    drive, looks = client._broker.drive, list[object]()

    def count(flow: Any) -> Any:
        if getattr(flow, "__name__", "") == "look_at":
            looks.append(flow)
        return drive(flow)

    client._broker.drive = count  # type: ignore[method-assign]  # counts, and does the same
    assert len(list(client.as_completed(handles))) == 4_001
    assert len(looks) >= 3


def test_a_client_of_one_connection_waits_by_looking(
    shared_server: RedisServer, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    place: dict[str, Any] = {"connection_class": UnixDomainSocketConnection, "path": shared_server.socket_path}
    pool = BlockingConnectionPool(max_connections=1, timeout=PATIENCE_S, **place)  # type: ignore[no-untyped-call]  # redis-py's
    with Redis.from_pool(pool) as given, Client(given) as client:
        handle = client.submit("t", task_id="a")
        site.end("a", result=b"7", tells=False)
        assert handle.result() == b"7"
    assert [record.getMessage() for record in caplog.records] == [
        "cannot hear when tasks end, and looks every 5 s: SUBSCRIBE: the Redis client was given with "
        "max_connections=1, and a subscription needs a connection of its own"
    ]


def test_a_subscription_that_is_not_answered_holds_up_no_wait(
    shared_server: RedisServer, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.handles.blocking.OPEN_WITHIN_S", 0.05)
    monkeypatch.setattr("fastq.broker.transport.blocking_subscription.ANSWER_WITHIN_S", 0.1)
    with (
        faulty_proxy(shared_server.socket_path, Fault("SUBSCRIBE", Act.SWALLOW, times=None)) as proxy,
        Client(proxy.url) as client,
    ):
        client._waiter._look_every_s = 0.05
        waiting = begin(client, client.submit("t", task_id="a").result)
        site.end("a", result=b"7", tells=False)
        assert waiting.ended() == b"7"


def test_threads_share_what_a_new_process_waits_with(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Barrier(2, timeout=PATIENCE_S)
    monkeypatch.setattr("fastq.handles.blocking.new_name", lambda: f"{both.wait()}")
    waitings = [Waiting(lambda: client._waiter.own) for _ in range(2)]
    first, second = (waiting.ended() for waiting in waitings)
    assert first is second
    assert client._waiter.own is first


def test_a_forked_process_can_close_the_client_whatever_the_parent_held(client: Client) -> None:
    with client._waiter.own.lock:
        child = os.fork()
    if not child:
        signal.alarm(int(PATIENCE_S))
        try:
            client.close()
            os._exit(0)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
