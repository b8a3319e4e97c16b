"""Wait until a queue has pending tasks, without moving one: a blocked BLMOVE from the tail to the tail.

The id that it "moves" stays where it is, so nothing ever leaves the protocol, and any producer's push wakes it. On a
list that is not empty it returns at once: ask only after a dequeue has answered "empty".
"""

import time
from collections.abc import Callable
from typing import Any

from redis.exceptions import ResponseError

from fastq import keys
from fastq.broker.aio import AsyncPool, is_in_step
from fastq.broker.faults import CONNECT_FAULTS, CONNECTION_FAULTS, REFUSALS, Lost, Unsent, refusal, transport_error

__all__ = ["QueueWait"]

ANSWER_WITHIN_S = 5.0


class QueueWait:
    """Wait for one queue, again and again, on a connection that is kept for that as long as the waits go well."""

    def __init__(self, lender: Callable[[str], AsyncPool], where: str, queue: str) -> None:
        self._lender = lender
        self._where = where
        self._key = keys.pending(queue)
        self._kept: tuple[AsyncPool, Any] | None = None

    async def wait(self, timeout_s: float) -> bool:
        """Return true once the queue has pending tasks, false after ``timeout_s``; raise ``BrokerError``.

        It needs the right to BLMOVE and fails where Redis takes no writes. Cancelled, it gives up its connection.
        """
        pool, connection = await self._take()
        in_step = False
        began_s = time.monotonic()
        try:
            await connection.send_command("BLMOVE", self._key, self._key, "RIGHT", "RIGHT", timeout_s)
            reply = await connection.read_response(
                disable_decoding=True, disconnect_on_error=False, timeout=timeout_s + ANSWER_WITHIN_S
            )
            # None is Redis' nil, or redis-py's own time that is up; in the second case the reply may still come.
            in_step = reply is not None or time.monotonic() < began_s + timeout_s + ANSWER_WITHIN_S / 2
            return reply is not None
        except (ResponseError, *REFUSALS) as error:
            raise refusal(error, "BLMOVE") from error
        except CONNECTION_FAULTS as error:
            raise transport_error(Lost(error), "BLMOVE", self._where) from error
        finally:
            if in_step:
                self._kept = pool, connection
            else:
                await connection.disconnect(nowait=True)
                await pool.release(connection)

    async def close(self) -> None:
        """Give the connection back; another wait takes a new one."""
        if self._kept is not None:
            (pool, connection), self._kept = self._kept, None
            await pool.release(connection)

    async def _take(self) -> tuple[AsyncPool, Any]:
        pool = self._lender(self._key)
        if self._kept is not None and self._kept[0] is pool and await is_in_step(self._kept[1]):
            kept, self._kept = self._kept, None
            return kept
        await self.close()  # in a cluster each time: the queue may be on another node now
        try:
            return pool, await pool.get_connection()
        except CONNECT_FAULTS as error:
            raise transport_error(Unsent(error), "BLMOVE", self._where) from error
