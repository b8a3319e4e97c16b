"""The line of a connection: replies are taken as they come, and a free connection is used without a task."""

import asyncio
from typing import Any

import pytest
import redis.asyncio
from hiredis import PushNotification
from redis import Redis

from fastq.broker.operation import Operation
from fastq.broker.operations.dequeue import NoTasks, dequeue
from fastq.broker.transport.aio import exchange_on, is_open
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import NoReply, Unsent, is_timeout
from fastq.broker.transport.line import line_of
from fastq.broker.transport.loops import LoopTransport
from fastq.broker.transport.open import open_async_broker
from fastq.server.base.commands import Commands
from tests.broker.transport.test_exchange import Served, SlowLink, served
from tests.waiting import PATIENCE_S

PING = b"*1\r\n$4\r\nPING\r\n"
OWN_ID: Operation[int] = Operation("CLIENT", (), ("ID",), int)


class Asked:
    """The answer to a request on a line."""

    def __init__(self, ends: Served, count: int, limit_s: float | None = PATIENCE_S, most_s: float = 1e9) -> None:
        self.is_here = asyncio.Event()
        self.replies: list[Any] = []
        self.fault: Exception | None = None
        line_of(ends.connection).ask([PING] * count, count, self._answer, limit_s, most_s)

    def _answer(self, replies: list[Any], fault: Exception | None) -> None:
        assert not self.is_here.is_set(), "it is called once"
        self.replies, self.fault = replies, fault
        self.is_here.set()


def test_replies_come_in_any_pieces_and_a_connection_has_one_line() -> None:
    async def test() -> None:
        async with served(PATIENCE_S) as ends:
            link = SlowLink(ends)
            for _ in range(2):
                asked = Asked(ends, 2)
                for piece in (b"+PO", b"NG\r\n+PON", b"G\r\n"):
                    assert not asked.is_here.is_set()
                    await link.bring(piece)
                assert (asked.replies, asked.fault) == ([b"PONG", b"PONG"], None)
            assert line_of(ends.connection) is line_of(ends.connection)

    asyncio.run(test())


def test_a_message_between_replies_is_redis_py_s() -> None:
    async def test() -> None:
        heard: list[Any] = []

        async def handle(push: Any) -> None:
            heard.append(push)

        async with served(PATIENCE_S) as ends:
            parser: Any = ends.connection._parser
            parser.handle_push_response = handle
            asked = Asked(ends, 2)
            ends.writer.write(b"+1\r\n>2\r\n+news\r\n+of it\r\n+2\r\n")
            await asked.is_here.wait()
            await asyncio.sleep(0)
            assert asked.replies == [b"1", b"2"]
            assert [type(one) for one in heard] == [PushNotification]

    asyncio.run(test())


def test_replies_without_an_end_are_given_up() -> None:
    async def test() -> None:
        async with served(10.0) as ends:
            link = SlowLink(ends)
            asked = Asked(ends, 2, 10.0, 30.0)
            for piece in (b"$20\r\n0123", b"4567", b"8901"):
                await link.bring(piece)
                await link.pass_s(9)
                assert not asked.is_here.is_set()
            await link.bring(b"23")
            await link.pass_s(9)
            assert asked.fault is not None
            assert is_timeout(asked.fault)

    asyncio.run(test())


def test_a_connection_that_ends_answers_with_what_has_come() -> None:
    async def test() -> None:
        async with served(PATIENCE_S) as ends:
            asked = Asked(ends, 2)
            await ends.reader.readexactly(2 * len(PING))
            ends.writer.write(b"+PONG\r\n")
            ends.writer.close()
            await asked.is_here.wait()
            assert asked.replies == [b"PONG"]
            assert str(asked.fault) == "Connection closed by server."

    asyncio.run(test())


@pytest.mark.parametrize(
    ("with_the_reply", "later"),
    [
        (b"+another\r\n", b""),
        (b">2\r\n+news\r\n", b"+of it\r\n"),
        (b"", b"-ERR the server goes down\r\n"),
    ],
)
def test_a_connection_with_what_nobody_asked_for_is_not_used_again(with_the_reply: bytes, later: bytes) -> None:
    async def test() -> None:
        async with served(PATIENCE_S) as ends:
            asked = Asked(ends, 1)
            link = SlowLink(ends)
            await link.bring(b"+own\r\n" + with_the_reply)
            assert (asked.replies, asked.fault) == ([b"own"], None)
            if later:
                assert is_open(ends.connection)
                await link.bring(later)
            assert not is_open(ends.connection)
            (reply,) = await exchange_on(ends.connection, [Command(("INCR", "k"), "k")])
            assert isinstance(reply, Unsent)

    asyncio.run(test())


def test_a_lent_connection_that_was_reset_is_made_anew(db: Redis, url: str) -> None:
    async def test() -> None:
        client = redis.asyncio.Redis.from_url(url)
        broker = open_async_broker(client)
        try:
            first = await broker.run(OWN_ID)
            connection: Any = client.connection_pool._available_connections[0]
            line_of(connection).connection_lost(ConnectionResetError("reset"))
            connection._writer.transport.abort()
            assert await broker.run(OWN_ID) != first
        finally:
            await client.aclose()

    asyncio.run(test())


def test_a_pipeline_on_a_free_connection_needs_no_task(db: Redis, url: str) -> None:
    async def test() -> None:
        broker = open_async_broker(url)
        commands = Commands(broker)
        try:
            first = await commands.run(OWN_ID)
            before = asyncio.all_tasks()
            answer = commands.begin([OWN_ID])
            await asyncio.sleep(0)
            assert commands._only._under_way == 1
            assert asyncio.all_tasks() == before
            assert await answer == [first]
            db.script_flush()
            assert await commands.run(OWN_ID) == first
        finally:
            await broker.close()

    asyncio.run(test())


def test_a_kept_connection_that_breaks_gives_no_reply_and_is_not_kept(db: Redis, url: str) -> None:
    async def test() -> None:
        broker = open_async_broker(url)
        transport = broker.transport
        assert isinstance(transport, LoopTransport)
        node: Any = transport._transport()
        try:
            own = await broker.run(OWN_ID)
            assert len(node._kept) == 1
            done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            command = Command(("CLIENT", "KILL", "ID", own, "SKIPME", "no"), None)
            blocked = Command(("BLPOP", "nothing", "0"), None)
            assert transport.begin([command, blocked], done.set_result, PATIENCE_S)
            assert not transport.begin([command], done.set_result, PATIENCE_S), "the only one is in use"
            *_, last = await done
            assert isinstance(last, NoReply)
            assert node._kept == []
            assert await broker.run(OWN_ID) != own
        finally:
            await broker.close()

    asyncio.run(test())


def test_a_script_that_redis_does_not_know_any_more_is_sent_as_text(db: Redis, url: str) -> None:
    async def test() -> None:
        broker = open_async_broker(url)
        commands = Commands(broker)
        try:
            for _ in range(2):
                assert await commands.run(dequeue("q", 1, "1.5")) is NoTasks.EMPTY
                db.script_flush()
        finally:
            await broker.close()

    asyncio.run(test())
