"""The asyncio transport keeps its connections between calls, and uses none that Redis has closed."""

import asyncio

from redis import Redis

from fastq.broker.operation import Operation
from fastq.broker.transport.aio import AsyncNodeTransport
from fastq.broker.transport.loops import LoopTransport
from fastq.broker.transport.open import open_async_broker
from tests.waiting import until


def test_a_kept_connection_is_used_again_until_redis_closes_it(db: Redis, url: str) -> None:
    own_id = Operation("CLIENT", (), ("ID",), int)

    async def run() -> None:
        broker = open_async_broker(url)
        try:
            first = await broker.run(own_id)
            assert await broker.run(own_id) == first
            assert isinstance(broker.transport, LoopTransport)
            node = broker.transport._transport()
            assert isinstance(node, AsyncNodeTransport)
            (kept,) = node._kept
            db.client_kill_filter(_id=str(first))
            await until(lambda: not kept.is_connected or kept._reader.at_eof())
            # It is not idempotent: sent on the closed connection, it would fail.
            assert await broker.run(own_id) != first
            assert node._kept == [kept]
        finally:
            await broker.close()
        assert not kept.is_connected

    asyncio.run(run())


def test_no_call_begins_on_a_kept_connection_that_was_reset(url: str) -> None:
    ping = Operation("PING", (), (), bytes)

    async def run() -> None:
        broker = open_async_broker(url)
        try:
            await broker.run(ping)
            assert isinstance(broker.transport, LoopTransport)
            node = broker.transport._transport()
            assert isinstance(node, AsyncNodeTransport)
            (kept,) = node._kept
            kept._writer.transport._force_close(ConnectionResetError())  # as asyncio does at a reset
            await asyncio.sleep(0)
            assert not broker.begin([ping], lambda *_: None, 1.0)
            assert await broker.run(ping)
        finally:
            await broker.close()

    asyncio.run(run())
