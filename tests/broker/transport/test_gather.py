"""Gathering: concurrent callers share pipelines, and nothing else: not their replies, errors, delays or ends."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from fastq import AsyncClient, BrokerError, TaskInfo
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import NoReply, Unsent
from fastq.broker.transport.gather import MOST_BYTES, MOST_COMMANDS, MOST_UNDER_WAY, GatheringTransport
from tests.broker.harness import run
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer


class Server:
    """A fake transport of a server: its pipelines end when the test says so, and each reply repeats the command."""

    where = "here"
    node_name_of = None

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    def begin(self, *how: Any) -> bool:
        return False

    async def transfer(self, commands: Sequence[Command]) -> list[Any]:
        self.sent.append([str(command.words[0]) for command in commands])
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return [f"{command.words[0]!s}!" for command in commands]

    def lender(self, key: str | None = None) -> Any:
        raise NotImplementedError

    async def place_of(self, key: str) -> str:
        raise NotImplementedError

    def on_change(self, call: object) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def ask(*words: str, size: int = 0) -> list[Command]:
    return [Command((word, b"x" * size), None) for word in words]


async def begin(transport: GatheringTransport, *callers: list[Command]) -> list[asyncio.Task[list[Any]]]:
    """Let callers ask, one after the other."""
    asking = []
    for commands in callers:
        asking.append(asyncio.create_task(transport.transfer(commands)))
        await asyncio.sleep(0)
    return asking


def test_a_lone_caller_waits_for_nobody() -> None:
    async def test() -> None:
        server = Server()
        transport = GatheringTransport(server)
        for word in "abc":
            assert await transport.transfer(ask(word)) == [f"{word}!"]
        assert server.sent == [["a"], ["b"], ["c"]]

    run(test)


def test_those_who_come_while_two_pipelines_are_under_way_share_the_next() -> None:
    async def test() -> None:
        server = Server()
        transport = GatheringTransport(server)
        server.open.clear()
        asking = await begin(transport, *(ask(word) for word in "abcd"), ask("e1", "e2"))
        assert server.sent == [["a"], ["b"]]
        server.open.set()
        assert await asyncio.gather(*asking) == [["a!"], ["b!"], ["c!"], ["d!"], ["e1!", "e2!"]]
        assert server.sent == [["a"], ["b"], ["c", "d", "e1", "e2"]]

    run(test)


@pytest.mark.parametrize(("size", "most"), [(0, MOST_COMMANDS), (MOST_BYTES // 10, 10)])
def test_a_pipeline_is_bounded_in_commands_and_bytes(size: int, most: int) -> None:
    async def test() -> None:
        server = Server()
        transport = GatheringTransport(server)
        server.open.clear()
        asking = await begin(transport, *(ask("x", size=size) for _ in range(MOST_UNDER_WAY + 2 * most)))
        server.open.set()
        await asyncio.gather(*asking)
        assert [len(pipeline) for pipeline in server.sent[MOST_UNDER_WAY:]] == [most, most]

    run(test)


def test_a_caller_that_is_cancelled_leaves_the_others_alone_and_is_not_sent() -> None:
    async def test() -> None:
        server = Server()
        transport = GatheringTransport(server)
        server.open.clear()
        sent, other, gone, here = await begin(transport, *(ask(word) for word in "abcd"))
        sent.cancel()
        gone.cancel()
        await asyncio.sleep(0)
        server.open.set()
        assert (await other, await here) == (["b!"], ["d!"])
        assert server.sent == [["a"], ["b"], ["d"]]
        assert await transport.transfer(ask("e")) == ["e!"]

    run(test)


def test_a_defect_is_told_to_all_who_shared_it_and_to_nobody_else() -> None:
    async def test() -> None:
        server = Server()
        transport = GatheringTransport(server)
        server.open.clear()
        first, second, *others = await begin(transport, *(ask(word) for word in "abcd"))
        server.error = RuntimeError("a defect")
        server.open.set()
        told = await asyncio.gather(first, second, *others, return_exceptions=True)
        assert [type(one) for one in told] == [RuntimeError] * 4
        server.error = None
        assert await transport.transfer(ask("e")) == ["e!"]

    run(test)


def test_closing_answers_all_who_wait() -> None:
    async def test() -> None:
        server = Server()
        transport = GatheringTransport(server)
        server.open.clear()
        first, second, third = await begin(transport, *(ask(word) for word in "abc"))
        first.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert server.sent == [["a"], ["b"], ["c"]]
        (fourth,) = await begin(transport, ask("d"))
        await transport.close()
        ((lost,), (unsent,)) = await asyncio.gather(third, fourth)
        assert isinstance(lost, NoReply)
        assert isinstance(unsent, Unsent)
        server.open.set()
        assert await second == ["b!"]

    run(test)


# On a real Redis --------------------------------------------------------------------------------------------------


async def enqueue_at_once(client: AsyncClient, count: int) -> list[TaskInfo | BaseException]:
    calls = [client.enqueue("t", task_id=f"id-{n:03}") for n in range(count)]
    return await asyncio.gather(*calls, return_exceptions=True)


def test_callers_have_their_own_results(db: Redis, url: str) -> None:
    async def test() -> None:
        async with AsyncClient(url) as client:
            await client.enqueue("t", task_id="id-007")
            infos = await enqueue_at_once(client, 100)
            assert [type(info).__name__ for info in infos].count("TaskIDConflictError") == 1
            assert [info.id for info in infos if isinstance(info, TaskInfo)] == [
                f"id-{n:03}" for n in range(100) if n != 7
            ]

    run(test)
    assert db.llen("asynq:{default}:pending") == 100


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY, Act.CUT_IN_REPLY])
def test_a_pipeline_whose_reply_is_lost_loses_and_repeats_nobody_s_task(
    act: Act, db: Redis, shared_server: RedisServer
) -> None:
    async def test() -> None:
        with faulty_proxy(shared_server.socket_path, *[Fault("EVALSHA", act) for _ in range(3)]) as proxy:
            async with AsyncClient(proxy.url) as client:
                infos = await enqueue_at_once(client, 60)
            assert not any(fault.times for fault in proxy.faults), "every fault was met"
        assert [info.id for info in infos if isinstance(info, TaskInfo)] == [f"id-{n:03}" for n in range(60)]

    run(test)
    assert sorted(db.lrange("asynq:{default}:pending", 0, -1)) == [f"id-{n:03}".encode() for n in range(60)]


def test_a_refusal_is_its_caller_s_alone(db: Redis, url: str) -> None:
    db.set("asynq:{odd}:pending", "no list")

    async def test() -> None:
        async with AsyncClient(url) as client:
            calls = [client.enqueue("t", queue="odd" if n == 5 else "even") for n in range(20)]
            results = await asyncio.gather(*calls, return_exceptions=True)
        assert [n for n, result in enumerate(results) if isinstance(result, BrokerError)] == [5]
        assert sum(isinstance(result, TaskInfo) for result in results) == 19

    run(test)


def test_a_caller_who_comes_as_two_pipelines_end_in_one_turn_is_not_left_waiting() -> None:
    """A woken caller asks again before the loop has counted the sender that woke him as gone."""

    class OneByOne(Server):
        def __init__(self) -> None:
            super().__init__()
            self.ends: list[asyncio.Future[None]] = []

        async def transfer(self, commands: Sequence[Command]) -> list[Any]:
            self.ends.append(asyncio.get_running_loop().create_future())
            await self.ends[-1]
            return [None for _ in commands]

    async def ask_often(transport: GatheringTransport, times: int) -> None:
        for _ in range(times):
            await transport.transfer(ask("x"))

    async def turns() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def test() -> None:
        server = OneByOne()
        transport = GatheringTransport(server)
        callers = [asyncio.create_task(ask_often(transport, times)) for times in (1, 1, 2, 2)]
        await turns()
        server.ends.pop(0).set_result(None)
        await turns()  # the third and the fourth go out together
        callers.append(asyncio.create_task(ask_often(transport, 1)))
        await turns()
        server.ends.pop(0).set_result(None)
        await turns()  # the fifth goes out: two senders
        while server.ends:
            for end in [server.ends.pop() for _ in list(server.ends)]:
                end.set_result(None)
            await turns()
        assert all(caller.done() for caller in callers)

    run(test)
