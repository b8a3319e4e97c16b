"""Gathering: commands of concurrent callers to one server share pipelines.

No command waits to be joined by others: it is sent at once while fewer than two pipelines are under way. Commands that
come while two are under way go into the next one together. Each caller gets its own replies and errors.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from fastq.broker.transport.aio import AsyncPool, AsyncTransport
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import ClientClosedError, NoReply, Unsent

MOST_UNDER_WAY: Final = 2
MOST_COMMANDS: Final = 250
MOST_BYTES: Final = 256_000
"""A pipeline takes no further caller once its commands reach one of these limits."""

_CLOSED: Final = ClientClosedError()

_Asked: TypeAlias = tuple[Sequence[Command], asyncio.Future[list[Any]]]


class GatheringTransport:
    """A transport that sends the commands of concurrent callers together, over a transport for one caller."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._waiting: deque[_Asked] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self.where = transport.where
        self.node_name_of = transport.node_name_of

    def lender(self, key: str | None = None) -> AsyncPool:
        """Return a pool that lends connections for exclusive use."""
        return self._transport.lender(key)

    async def place_of(self, key: str) -> str:
        """Return the address of a key's node."""
        return await self._transport.place_of(key)

    def on_change(self, call: Callable[[], None]) -> None:
        """Register a function to call whenever keys get another master."""
        self._transport.on_change(call)

    def begin(self, commands: Sequence[Command], done: Callable[[list[Any]], None], most_s: float) -> bool:
        """Return false: the commands may have to wait for a pipeline."""
        del commands, done, most_s
        return False

    async def transfer(self, commands: Sequence[Command]) -> list[Any]:
        """Return the reply or fault of each command; a canceled caller does not affect the others."""
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
        """Start a coroutine that sends the waiting commands.

        A caller that has its own replies need not send the commands of others.
        """
        if self._waiting and self._under_way < MOST_UNDER_WAY:
            self._under_way += 1
            sender = asyncio.create_task(self._send(), name="fastq gathering")
            self._senders.add(sender)
            sender.add_done_callback(self._sent)

    def _sent(self, sender: asyncio.Task[None]) -> None:
        # A command may have come after the sender's last look, while the sender still counted as under way.
        self._senders.discard(sender)
        self._under_way -= 1
        self._go_on()

    async def close(self) -> None:
        """Give up the commands under way; their callers get ``NoReply``, since the outcome is unknown."""
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
            except Exception as error:  # noqa: BLE001 - a defect; no caller may wait forever because of it
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                one_by_one = iter(replies)
                for commands, answer in batch:
                    _give(answer, [next(one_by_one) for _ in commands])

    def _next_batch(self) -> Iterator[_Asked]:
        """Take the callers of the next pipeline, at least one."""
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
