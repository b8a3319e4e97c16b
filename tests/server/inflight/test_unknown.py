"""Types that this server does not know: who else knows them, by what servers tell in a real Redis."""

import asyncio
from collections.abc import Sequence

import pytest
from redis import Redis

from fastq.broker.operations.cancel import CancelAs
from fastq.broker.operations.finish import Archived, Retried
from fastq.broker.operations.presence import ServerIdentity, ServerState, list_server, publish_server_state
from fastq.pool.shared.event_kind import EventKind
from fastq.server.inflight.unknown import (
    AT_ONCE,
    COUNTED_FOR_S,
    LOG_AGAIN_S,
    READ_AGAIN_S,
    UnknownTypes,
    pass_on_delay_s,
)
from fastq.wire import keys
from fastq.wire.codec import decode_task_message
from fastq.wire.messages import ServerInfoMessage
from fastq.wire.notice import ServerNotice
from fastq.wire.records import encode_server_info
from fastq.worker.shared.report import FailureReport
from tests.broker.harness import NOW_S, run
from tests.faulty_proxy import faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.harness import Bench, logged, on_bench
from tests.server.inflight.test_processor import Bench as CrewBench

PEER = ServerIdentity("host", 8, "peer")
KNOWN, OTHER = ("q", "email:send"), ("q", "sms")


async def show(
    bench: Bench, patterns: Sequence[str], queues: Sequence[str] = ("q",), ttl_s: int = 100, status: str = "active"
) -> None:
    notice = ServerNotice("1", tuple(queues), tuple(patterns)).encode()
    info = ServerInfoMessage(PEER.host, PEER.pid, PEER.server_id, 1, dict.fromkeys(queues, 1), False, status, None, 0)
    shown = ServerState(encode_server_info(info), {}, notice)
    await bench.broker.run_many((*list_server(PEER, NOW_S + ttl_s), *publish_server_state(PEER, shown, ttl_s)))


async def chosen(types: UnknownTypes, *asked: tuple[str, str]) -> set[tuple[str, str]]:
    """Ask about all at once; return those that are passed on."""
    answers = await asyncio.gather(*(types.pass_on_after_s(*one) for one in asked))
    return {one for one, after_s in zip(asked, answers, strict=True) if after_s is not None}


def unknown(bench: Bench, rule: str = "auto") -> UnknownTypes:
    return UnknownTypes(rule, bench.broker, bench.clock)


def test_what_another_server_of_the_queue_knows_is_given_back(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        await show(bench, ["email:"], ["q", "r"])
        asked = {KNOWN, OTHER, ("r", "email:send"), ("s", "email:send")}
        assert await chosen(unknown(bench), *asked) == {KNOWN, ("r", "email:send")}

    on_bench(db, url, test)


def test_a_name_that_another_server_knows_takes_no_longer_type(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        await show(bench, ["email:send\0"])
        assert await chosen(unknown(bench), KNOWN, ("q", "email:send_all")) == {KNOWN}

    on_bench(db, url, test)


@pytest.mark.parametrize(("rule", "expected"), [("retry", set()), ("return", {KNOWN, OTHER})])
def test_a_rule_that_says_it_asks_nobody(
    rule: str,
    expected: set[tuple[str, str]],
    db: Redis,
    shared_server: RedisServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy:

        async def test(bench: Bench) -> None:
            await show(bench, ["email:"])
            before = len(proxy.seen)
            assert await chosen(unknown(bench, rule), KNOWN, OTHER) == expected
            assert len(proxy.seen) == before

        on_bench(db, shared_server.url, test, through=proxy.url)
    assert len(logged(caplog)) == 2


def test_servers_that_are_gone_know_nothing(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        await show(bench, ["email:"], ttl_s=10)
        bench.clock.advance(11)
        assert await chosen(unknown(bench), KNOWN) == set()

    on_bench(db, url, test)


@pytest.mark.parametrize("status", ["stopped", "closed", "new", ""])
def test_servers_that_take_no_tasks_have_handlers_for_nobody(status: str, db: Redis, url: str) -> None:
    """One that was told to be quiet would never take what is given back for it."""

    async def test(bench: Bench) -> None:
        await show(bench, ["email:"], status=status)
        assert await chosen(unknown(bench), KNOWN) == set()

    on_bench(db, url, test)


@pytest.mark.parametrize("notice", [None, b"\xff", b'{"format":2}'])
def test_servers_that_tell_nothing_are_passed_over(notice: bytes | None, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        await show(bench, ["email:"])
        gos = keys.server_info("host", 9, "go")
        db.zadd(keys.all_servers(), {gos: NOW_S + 100})
        if notice is not None:
            db.set(keys.server_notice(gos), notice)
        assert await chosen(unknown(bench), KNOWN) == {KNOWN}

    on_bench(db, url, test)


def test_servers_are_asked_again_after_a_while(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        types = unknown(bench)
        assert await chosen(types, KNOWN) == set()
        await show(bench, ["email:"])
        bench.clock.advance(READ_AGAIN_S - 1)
        assert await chosen(types, KNOWN) == set()
        bench.clock.advance(1)
        assert await chosen(types, KNOWN) == {KNOWN}

    on_bench(db, url, test)


def test_what_cannot_be_read_counts_as_known_to_nobody(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        await show(bench, ["email:"])
        db.set(keys.all_servers(), "no sorted set")
        types = unknown(bench)
        assert await chosen(types, KNOWN) == set()
        assert await chosen(types, KNOWN) == set()

    on_bench(db, url, test)
    failed, told = logged(caplog)
    assert failed.startswith("could not refresh the task types that other servers handle: ")
    assert (
        told == "no handler here matches type 'email:send' of queue q; its tasks fail, and each is charged an attempt"
    )


def test_types_are_logged_once_a_minute_and_ten_at_most(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        types = unknown(bench, "return")
        for _ in range(2):
            await chosen(types, KNOWN)
        assert logged(caplog) == [
            "no handler here matches type 'email:send' of queue q; its tasks wait 5 to 10 s for another server of "
            "this queue"
        ]
        await chosen(types, *(("q", str(number)) for number in range(100)))
        assert len(logged(caplog)) == 10
        bench.clock.advance(LOG_AGAIN_S)
        await chosen(types, KNOWN)
        assert len(logged(caplog)) == 11

    on_bench(db, url, test)


def test_what_another_server_is_known_to_take_is_due_at_once_unless_there_are_many(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        await show(bench, ["email:"])
        types = unknown(bench)
        assert {await types.pass_on_after_s(*KNOWN) for _ in range(AT_ONCE)} == {0}
        assert {await types.pass_on_after_s(*KNOWN) for _ in range(AT_ONCE - 1)} == {1}
        for _ in range(8 * AT_ONCE):
            await types.pass_on_after_s(*KNOWN)
        assert {await types.pass_on_after_s(*KNOWN) for _ in range(AT_ONCE)} == set(range(1, 11))
        bench.clock.advance(COUNTED_FOR_S)
        await show(bench, ["email:"])
        assert await types.pass_on_after_s(*KNOWN) == 0

    on_bench(db, url, test)
    (told,) = logged(caplog)
    assert told.startswith("no handler here matches type 'email:send' of queue q; its tasks go to another server")
    assert told.endswith("if these are two apps, give each a queue of its own (--queues)")


def test_what_is_given_back_is_due_neither_at_once_nor_together() -> None:
    assert {pass_on_delay_s() for _ in range(1000)} == set(range(5, 11))


# In the processor


NO_HANDLER = FailureReport("handler not found").encode()


async def is_known(queue: str, task_type: str) -> int | None:
    """Answer as the peers do; they know one type."""
    await asyncio.sleep(0)
    return 3 if (queue, task_type) == ("q", "known") else None


def test_tasks_of_unknown_types_are_passed_on_where_that_is_chosen() -> None:
    async def running() -> None:
        bench = CrewBench()
        bench.processor._unknown.pass_on_after_s = is_known  # type: ignore[method-assign]
        bench.processor._patterns.add("ours")
        bench.accept("a", "last", "lost", type="known", retry=0)
        bench.accept("b", type="nobody's")
        bench.accept("c", "done", type="ours")
        lost = bench.task("lost")
        unheard = [(task_id, EventKind.NOT_FOUND, NO_HANDLER) for task_id in ("a", "last", "lost", "b", "c")]
        bench.tell(*unheard, ("done", EventKind.DONE, b""))
        bench.take_all()
        assert bench.ended() == [("done", "Done"), ("c", "Retried")], "a handler may raise the error, too"
        bench.processor.lose(lost)
        await bench.processor.questions.settle(5.0)
        assert sorted(bench.ended()[2:]) == [("a", "Retried"), ("b", "Retried"), ("last", "Retried")]
        for task in bench.finished[1:]:
            write, is_failure = task.disposition, task.id in ("b", "c")
            assert isinstance(write, Retried)
            assert write.is_failure is is_failure
            found = decode_task_message(write.message)
            assert (found.retried, found.error_msg) == (int(is_failure), "handler not found")
            assert is_failure or write.retry_at_s == NOW_S + 3

    run(running)


def test_a_task_that_is_cancelled_while_peers_are_asked_is_not_passed_on() -> None:
    async def running() -> None:
        bench = CrewBench()
        bench.processor._unknown.pass_on_after_s = is_known  # type: ignore[method-assign]
        bench.accept("a", "b", type="known")
        bench.task("b").canceled = CancelAs.ARCHIVE
        bench.tell(("a", EventKind.NOT_FOUND, NO_HANDLER), ("b", EventKind.NOT_FOUND, NO_HANDLER))
        bench.take_all()
        assert bench.ended() == [("b", "Archived")]
        bench.task("a").canceled = CancelAs.DELETE
        await bench.processor.questions.settle(5.0)
        assert bench.ended()[1:] == [("a", "Done")]

    run(running)


@pytest.mark.parametrize(("canceled", "ends"), [(None, "Retried"), (CancelAs.ARCHIVE, "Archived")])
def test_no_attempt_is_charged_when_peers_cannot_be_heard_before_the_end(canceled: CancelAs | None, ends: str) -> None:
    async def running() -> None:
        bench = CrewBench()

        async def never(queue: str, task_type: str) -> int | None:
            await asyncio.Event().wait()
            return None

        bench.processor._unknown.pass_on_after_s = never  # type: ignore[method-assign]
        bench.accept("a", type="known")
        bench.tell(("a", EventKind.NOT_FOUND, NO_HANDLER))
        bench.take_all()
        await asyncio.sleep(0)
        bench.task("a").canceled = canceled
        await bench.processor.questions.settle(0.0)
        assert bench.ended() == [("a", ends)]
        write = bench.finished[0].disposition
        assert isinstance(write, Retried | Archived)
        assert decode_task_message(write.message).retried == 0
        assert isinstance(write, Archived) or not write.is_failure

    run(running)
