"""One pipeline of operations, without Redis: what is sent, what is sent again, what the replies become."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import redis.asyncio
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fastq.broker.operation import Flow, Operation, Receive, Send
from fastq.broker.scripts import Script
from fastq.broker.transport.aio import AsyncBroker, exchange_on
from fastq.broker.transport.exchange import ATTEMPTS, CONNECT_ATTEMPTS, Command, Exchange, backoff_s, in_pieces
from fastq.broker.transport.faults import NoReply, Unsent, is_timeout, transport_error
from fastq.broker.transport.line import line_of
from fastq.errors import (
    BrokerAuthError,
    BrokerConnectionError,
    BrokerError,
    BrokerOutOfMemoryError,
    BrokerTimeoutError,
)
from tests.waiting import PATIENCE_S

SCRIPT = Script("twice", "return ARGV[1] * 2", "5ha")
READ: Operation[Any] = Operation("GET", ("k",), (), idempotent=True)
WRITE: Operation[Any] = Operation("INCR", ("k",), ())
CALL: Operation[int] = Operation("twice", ("{q}:a", "{q}:b"), (7,), int, script=SCRIPT)

CUT = RedisConnectionError("cut")
TIMEOUT = RedisTimeoutError("slow")


def run(
    operations: list[Operation[Any]], *rounds: list[Any]
) -> tuple[Exchange, list[list[tuple[Any, ...]]], list[float]]:
    """Give the replies of each round; return the exchange, what it sent in each, and how long it paused before."""
    exchange = Exchange(operations, "here:1")
    sent, pauses = [], []
    for replies in rounds:
        sent.append([command.words for command in exchange.commands()])
        pauses.append(exchange.pause_s)
        exchange.receive(replies)
    assert exchange.commands() == []
    return exchange, sent, pauses


def test_a_command_is_its_name_keys_and_arguments() -> None:
    operation: Operation[Any] = Operation("HGET", ("{q}:t",), ("msg",))
    assert Exchange((operation,), "here").commands() == [Command(("HGET", "{q}:t", "msg"), "{q}:t")]


def test_a_command_without_key_goes_anywhere() -> None:
    assert Exchange((Operation("PING", (), ()),), "here").commands() == [Command(("PING",), None)]


def test_a_script_is_called_by_its_sha_and_sent_as_text_when_it_is_not_known() -> None:
    exchange, sent, pauses = run([CALL], [NoScriptError("NOSCRIPT")], [b"14"])
    keys_and_args = (2, "{q}:a", "{q}:b", 7)
    assert sent == [[("EVALSHA", "5ha", *keys_and_args)], [("EVAL", "return ARGV[1] * 2", *keys_and_args)]]
    assert pauses == [0.0, 0.0]
    assert exchange.results == [14]


def test_a_script_that_stays_unknown_is_an_error() -> None:
    exchange, sent, _ = run([CALL], [NoScriptError("NOSCRIPT")], [NoScriptError("NOSCRIPT")])
    assert len(sent) == 2
    assert isinstance(exchange.results[0], BrokerError)


def test_only_the_scripts_that_are_not_known_are_sent_again() -> None:
    exchange, sent, _ = run([READ, CALL, CALL], [b"x", b"1", NoScriptError("NOSCRIPT")], [b"2"])
    assert [words[0] for words in sent[0]] == ["GET", "EVALSHA", "EVALSHA"]
    assert [words[0] for words in sent[1]] == ["EVAL"]
    assert exchange.results == [b"x", 1, 2]


def test_what_may_need_an_unknown_script_is_sent_again_behind_it() -> None:
    again: Operation[int] = Operation("twice", ("{q}:a",), (7,), int, idempotent=True, script=SCRIPT)
    exchange, sent, _ = run([READ, CALL, CALL, again], [b"x", NoScriptError("NOSCRIPT"), b"1", b"0"], [b"2", b"3"])
    assert [words[0] for words in sent[1]] == ["EVAL", "EVALSHA"]
    assert exchange.results == [b"x", 2, 1, 3]


def test_an_error_reply_stands_at_its_operation_and_leaves_the_others_alone() -> None:
    exchange, _, _ = run([READ, WRITE, READ], [b"x", OutOfMemoryError("OOM"), b"y"])
    assert [exchange.results[0], exchange.results[2]] == [b"x", b"y"]
    error = exchange.results[1]
    assert isinstance(error, BrokerOutOfMemoryError)
    assert (error.operation, error.maybe_applied) == ("INCR", False)


def test_a_lost_reply_is_asked_for_again_only_if_that_does_no_harm() -> None:
    exchange, sent, pauses = run([READ, WRITE], [NoReply(CUT), NoReply(CUT)], [b"x"])
    assert [words[0] for words in sent[1]] == ["GET"]
    assert pauses == [0.0, backoff_s(1)]
    assert exchange.results[0] == b"x"
    assert isinstance(exchange.results[1], BrokerConnectionError)
    assert exchange.results[1].maybe_applied


def test_a_script_lost_as_text_is_asked_for_again_as_text() -> None:
    operation: Operation[Any] = Operation("twice", ("k",), (1,), idempotent=True, script=SCRIPT)
    _, sent, _ = run([operation], [NoScriptError("NOSCRIPT")], [NoReply(CUT)], [b"2"])
    assert [words[0] for (words,) in sent] == ["EVALSHA", "EVAL", "EVAL"]


def test_it_is_asked_four_times_with_growing_pauses() -> None:
    exchange, sent, pauses = run([READ], *[[NoReply(CUT)]] * ATTEMPTS)
    assert len(sent) == ATTEMPTS == 4
    assert pauses == [0.0, 0.008, 0.064, 0.512]
    assert backoff_s(9) == 0.512
    assert isinstance(exchange.results[0], BrokerConnectionError)


def test_a_time_out_is_tried_once_more_and_one_on_connecting_not_at_all() -> None:
    exchange, sent, _ = run([READ], [NoReply(TIMEOUT)], [NoReply(TIMEOUT)])
    assert len(sent) == 2
    assert isinstance(exchange.results[0], BrokerTimeoutError)
    exchange, sent, _ = run([READ], [Unsent(TIMEOUT)])
    assert len(sent) == 1
    assert isinstance(exchange.results[0], BrokerTimeoutError)


def test_an_error_reply_is_final_even_for_an_idempotent_operation() -> None:
    exchange, sent, _ = run([READ], [ResponseError("WRONGTYPE")])
    assert len(sent) == 1
    assert isinstance(exchange.results[0], BrokerError)


TURNED_AWAY = [
    BusyLoadingError("Redis is loading the dataset in memory"),
    ResponseError("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
    ClusterDownError("CLUSTERDOWN The cluster is down"),
    MasterDownError("Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
    TryAgainError("Multiple keys request during rehashing of slot"),
]


@pytest.mark.parametrize("error", TURNED_AWAY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("operation", [READ, WRITE], ids=["idempotent", "not"])
def test_what_was_turned_away_at_the_door_is_sent_again_whatever_it_is(
    operation: Operation[Any], error: Exception
) -> None:
    """A Redis that is loading, busy or without its cluster does nothing; asynq's callers get the error at once."""
    exchange, sent, pauses = run([operation, CALL], [error, b"14"], [error], [7])
    assert (exchange.results, pauses) == ([7, 14], [0.0, backoff_s(1), backoff_s(2)])
    assert [len(words) for words in sent] == [2, 1, 1]
    exchange, sent, _ = run([operation], *[[error]] * ATTEMPTS)
    assert len(sent) == ATTEMPTS
    assert exchange.results[0].transient
    assert not exchange.results[0].maybe_applied


@pytest.mark.parametrize(
    "error",
    [
        ClusterDownError("Script executed a write command while the cluster is down script: 5ha, on @user_script:7."),
        ResponseError("BUSYKEY Target key name already exists."),
        ResponseError("WRONGTYPE Operation against a key"),
    ],
)
def test_what_ended_a_script_on_its_way_or_will_not_pass_is_not_sent_again(error: Exception) -> None:
    exchange, sent, _ = run([CALL], [error])
    assert len(sent) == 1
    assert isinstance(exchange.results[0], BrokerError)


def test_what_never_left_was_not_applied() -> None:
    exchange, _, _ = run([WRITE], *[[Unsent(CUT)]] * CONNECT_ATTEMPTS)
    assert exchange.results[0].maybe_applied is False


def test_what_never_left_is_sent_again_whatever_it_is() -> None:
    exchange, sent, pauses = run([READ, WRITE], [Unsent(CUT), Unsent(CUT)], [b"x", Unsent(CUT)], [1])
    assert (exchange.results, pauses) == ([b"x", 1], [0.0, backoff_s(1), backoff_s(2)])
    assert [len(words) for words in sent] == [2, 2, 1]
    exchange, sent, pauses = run([READ, WRITE], [Unsent(CUT), 1], [b"x"])
    assert (exchange.results, len(sent)) == ([b"x", 1], 2)


def test_what_never_left_is_given_up_with_all_that_it_came_with() -> None:
    """An enqueue on a Redis that is away fails when asynq's does, and does not wait for its queue to be registered."""
    exchange, sent, pauses = run([READ, WRITE], *[[Unsent(CUT), Unsent(CUT)]] * CONNECT_ATTEMPTS)
    assert pauses == [0.0, 0.008, 0.064]
    assert [result.operation for result in exchange.results] == ["GET", "INCR"]
    assert not any(result.maybe_applied for result in exchange.results)
    exchange, sent, _ = run([READ, READ], *[[Unsent(CUT), Unsent(CUT)]] * ATTEMPTS)
    assert len(sent) == ATTEMPTS


def test_what_was_sent_once_and_lost_is_not_sent_again_for_being_unsent_before() -> None:
    exchange, sent, _ = run([WRITE], [Unsent(CUT)], [NoReply(CUT)])
    assert len(sent) == 2
    assert exchange.results[0].maybe_applied


def test_a_refused_login_is_not_tried_again() -> None:
    exchange, sent, _ = run([WRITE], [Unsent(AuthenticationError("WRONGPASS"))])
    assert len(sent) == 1
    assert isinstance(exchange.results[0], BrokerAuthError)


def test_as_many_replies_as_commands_are_expected() -> None:
    exchange = Exchange((READ, READ), "here")
    with pytest.raises(ValueError, match="zip"):
        exchange.receive([b"x"])


class Served(NamedTuple):
    """Pair a connection with the end of it that a server would have."""

    connection: redis.asyncio.Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def _begin_without_handshake(connection: Any) -> None:
    connection._parser.on_connect(connection)


@asynccontextmanager
async def served(limit_s: float) -> AsyncIterator[Served]:
    """Connect to a server that says only what the test writes."""
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda *ends: accepted.put_nowait(ends), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    make: Any = redis.asyncio.Connection  # its types leave connect() out
    connection = make(host="127.0.0.1", port=port, socket_timeout=limit_s, redis_connect_func=_begin_without_handshake)
    await connection.connect()
    reader, writer = await accepted.get()
    try:
        yield Served(connection, reader, writer)
    finally:
        await connection.disconnect(nowait=True)
        writer.close()
        server.close()


def test_a_call_that_is_cancelled_while_it_sends_is_cancelled_and_gives_up_its_connection() -> None:
    async def test() -> None:
        async with served(PATIENCE_S) as ends:
            call = asyncio.create_task(exchange_on(ends.connection, [Command(("SET", "k", bytes(32 << 20)), "k")]))
            await ends.reader.read(1)  # it has begun, and nobody reads the rest
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert not ends.connection.is_connected

    asyncio.run(test())


def test_a_reply_that_is_later_than_the_limit_is_lost() -> None:
    async def test() -> None:
        async with served(0.05) as ends:
            call = asyncio.create_task(exchange_on(ends.connection, [Command(("GET", "k"), "k")] * 2))
            await ends.reader.read(1)
            ends.writer.write(b"+first\r\n")
            first, second = await call
            assert first in (b"first", second)  # lost as well if this process stood still
            assert isinstance(second, NoReply)
            assert str(second.error) == "no reply within 0.05 s"
            assert isinstance(transport_error(second, "GET", "here"), BrokerTimeoutError)
            assert not ends.connection.is_connected
            assert ends.connection.socket_timeout == 0.05

    asyncio.run(test())


class SlowLink:
    """The clock of the loop, moved by hand after each read of the client."""

    def __init__(self, ends: Served) -> None:
        self._ends = ends
        self._reads: asyncio.Queue[bytes] = asyncio.Queue()
        line = line_of(ends.connection)
        receive = line.data_received

        def receive_and_tell(data: bytes) -> None:
            receive(data)
            self._reads.put_nowait(data)

        line.data_received = receive_and_tell  # type: ignore[method-assign]  # of this line alone
        loop = asyncio.get_running_loop()
        self._now = loop.time()
        loop.time = lambda: self._now  # type: ignore[method-assign]  # the clock of this test's own loop

    async def bring(self, data: bytes) -> None:
        self._ends.writer.write(data)
        while data:
            data = data[len(await self._reads.get()) :]

    async def pass_s(self, seconds: float) -> None:
        self._now += seconds
        for _ in range(3):
            await asyncio.sleep(0)  # a timer that is due is called


def test_the_limit_is_that_of_a_time_without_progress() -> None:
    async def test() -> None:
        async with served(10.0) as ends:
            link = SlowLink(ends)
            call = asyncio.create_task(exchange_on(ends.connection, [Command(("GET", "k"), "k")] * 2))
            await ends.reader.read(1)
            for piece in (b"$20\r\n01234", b"56789", b"01234", b"56789\r\n"):
                await link.bring(piece)
                await link.pass_s(9)
                assert not call.done()
            await link.pass_s(2)
            first, second = await call
            assert first == b"01234567890123456789"
            assert isinstance(second, NoReply)
            assert is_timeout(second.error)
            assert ends.connection.socket_timeout == 10.0

    asyncio.run(test())


def test_a_large_command_is_sent_for_as_long_as_it_gets_on() -> None:
    size = 32 << 20

    async def test() -> None:
        async with served(10.0) as ends:
            link = SlowLink(ends)
            call = asyncio.create_task(exchange_on(ends.connection, [Command(("SET", "k", bytes(size)), "k")]))
            for _ in range(32):
                await ends.reader.readexactly(1 << 20)
                await link.pass_s(0.5)
                assert not call.done()
            ends.writer.write(b"+OK\r\n")
            assert await call == [b"OK"]

    asyncio.run(test())


def test_only_a_large_command_is_cut_into_pieces() -> None:
    assert in_pieces([b"a" * 100_000] * 5) == [[b"a" * 100_000] * 5]
    pieces = in_pieces([b"small", b"a" * 600_000])
    assert [len(piece) for (piece,) in pieces] == [5, 256_000, 256_000, 88_000]
    assert b"".join(piece for (piece,) in pieces) == b"small" + b"a" * 600_000


def test_a_connection_that_fell_silent_is_found_by_its_owner_s_health_check_and_nothing_is_sent_on_it() -> None:
    async def test() -> None:
        made = asyncio.Event()
        silent: list[asyncio.StreamWriter] = []
        heard: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            is_first = not silent
            silent.append(writer)
            while data := await reader.read(4096):
                if is_first and made.is_set():
                    continue
                heard.append(data)
                writer.write(b"+PONG\r\n" if b"PING" in data else b"+OK\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        make: Any = redis.asyncio.Redis
        client = make(
            host="127.0.0.1",
            port=server.sockets[0].getsockname()[1],
            protocol=2,
            socket_timeout=2.0,
            health_check_interval=60,
            redis_connect_func=_begin_without_handshake,
        )
        connection = await client.connection_pool.get_connection()
        assert await exchange_on(connection, [Command(("SET", "a", "1"), "a")]) == [b"OK"]
        made.set()
        connection.next_health_check = 0.0
        assert await exchange_on(connection, [Command(("SET", "b", "1"), "b")]) == [b"OK"]
        assert sum(b"SET" in data for data in heard) == 2
        await client.connection_pool.release(connection)
        await client.aclose()
        server.close()

    asyncio.run(test())


class Unhealthy:
    """A connection that is only looked at and closed."""

    is_connected = True

    async def disconnect(self, nowait: bool = False) -> None:
        self.is_connected = not nowait


def test_a_health_check_that_fails_has_sent_nothing() -> None:
    class Dead(Unhealthy):
        async def check_health(self) -> None:
            raise RedisConnectionError("no PONG")

    async def test() -> None:
        connection = Dead()
        (reply,) = await exchange_on(connection, [Command(("INCR", "k"), "k")])
        assert isinstance(reply, Unsent)
        assert not connection.is_connected

    asyncio.run(test())


def test_a_call_that_is_cancelled_during_a_health_check_gives_up_its_connection() -> None:
    """Its PONG would else be taken for the reply to another command."""

    class Checking(Unhealthy):
        async def check_health(self) -> None:
            is_checked.set()
            await asyncio.Event().wait()

    is_checked = asyncio.Event()

    async def test() -> None:
        connection = Checking()
        call = asyncio.create_task(exchange_on(connection, [Command(("GET", "k"), "k")]))
        await is_checked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not connection.is_connected

    asyncio.run(test())


class SilentTransport:
    """Take commands and never answer."""

    where = "nowhere"
    node_name_of = None

    def begin(self, *how: Any) -> bool:
        return False

    async def transfer(self, _commands: object) -> list[Any]:
        await asyncio.Event().wait()
        raise AssertionError("the event is never set")

    def lender(self, key: str | None = None) -> Any:
        raise NotImplementedError(key)

    async def place_of(self, key: str) -> str:
        raise NotImplementedError(key)

    def on_change(self, call: object) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_flow_that_is_cancelled_leaves_nothing_running(turns: int) -> None:
    """Not what it has just begun to send either, nor what it waits for."""

    def flow() -> Flow[None]:
        ticket = yield Send((READ,))
        yield Receive(ticket)

    async def run() -> set[asyncio.Task[Any]]:
        driving = asyncio.create_task(AsyncBroker(SilentTransport()).drive(flow()))
        for _ in range(turns):
            await asyncio.sleep(0)
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()
