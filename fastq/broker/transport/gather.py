"""Gathering: what many callers ask of one server at the same time goes out in shared pipelines.

Nobody waits for company: a command goes out at once while fewer than two pipelines are under way, and those that come
meanwhile go together in the next. Each caller has his own replies, errors and lost replies, as if he had sent alone.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from fastq.broker.transport.aio import AsyncPool, AsyncTransport
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import NoReply, Unsent

__all__ = ["GatheringTransport"]

MOST_UNDER_WAY: Final = 2
MOST_COMMANDS: Final = 250
MOST_BYTES: Final = 256_000
"""What goes beyond either is the last of its pipeline."""

_CLOSED: Final = ConnectionError("the client was closed meanwhile")

_Asked: TypeAlias = tuple[Sequence[Command], asyncio.Future[list[Any]]]


class GatheringTransport:
    """A transport that sends the commands of concurrent callers together, on a transport for one caller."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._waiting: deque[_Asked] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self.where = transport.where
        self.lane_of = transport.lane_of

    def lender(self, key: str | None = None) -> AsyncPool:
        """Return where a connection is to be had for whoever keeps one to himself."""
        return self._transport.lender(key)

    async def place_of(self, key: str) -> str:
        """Name the node of a key."""
        return await self._transport.place_of(key)

    def on_change(self, call: Callable[[], None]) -> None:
        """Have something called whenever keys have another master."""
        self._transport.on_change(call)

    async def transfer(self, commands: Sequence[Command]) -> list[Any]:
        """Return what came back for each command; a caller that is canceled leaves the others alone."""
        if self._under_way < MOST_UNDER_WAY:
            self._under_way += 1
            try:
                return await self._transport.transfer(commands)
            finally:
                self._under_way -= 1
                self._go_on()
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((commands, answer))
        return await answer

    def _go_on(self) -> None:
        """Let what waits be sent by a task of its own: whoever made room has what he came for."""
        if self._waiting and self._under_way < MOST_UNDER_WAY:
            self._under_way += 1
            sender = asyncio.create_task(self._send(), name="fastq gathering")
            self._senders.add(sender)
            sender.add_done_callback(self._sent)

    def _sent(self, sender: asyncio.Task[None]) -> None:
        # Somebody may have come after the sender's last look, while it still counted as under way.
        self._senders.discard(sender)
        self._under_way -= 1
        self._go_on()

    async def close(self) -> None:
        """Give up what is under way; who waits for it hears that it is not known what became of it."""
        waiting, self._waiting = self._waiting, deque()
        for commands, answer in waiting:
            _give(answer, [Unsent(_CLOSED)] * len(commands))
        senders = list(self._senders)
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        await self._transport.close()

    async def _send(self) -> None:
        while batch := list(self._next_batch()):
            try:
                replies = await self._transport.transfer([one for commands, _ in batch for one in commands])
            except asyncio.CancelledError:
                for commands, answer in batch:
                    _give(answer, [NoReply(_CLOSED)] * len(commands))
                raise
            except Exception as error:  # noqa: BLE001 - a defect; nobody may wait for ever because of it
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                one_by_one = iter(replies)
                for commands, answer in batch:
                    _give(answer, [next(one_by_one) for _ in commands])

    def _next_batch(self) -> Iterator[_Asked]:
        """Take the callers that go next: those of one pipeline, but one at least."""
        size = count = 0
        while self._waiting and size < MOST_BYTES and count < MOST_COMMANDS:
            commands, answer = self._waiting.popleft()
            if not answer.done():
                size += sum(map(_size, commands))
                count += len(commands)
                yield commands, answer


def _size(command: Command) -> int:
    return sum(len(word) for word in command.words if isinstance(word, bytes | str))


def _give(answer: asyncio.Future[list[Any]], replies: list[Any]) -> None:
    if not answer.done():  # its caller may have been canceled
        answer.set_result(replies)
