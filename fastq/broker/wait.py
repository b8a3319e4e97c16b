"""Wait until a queue has pending tasks, without moving one: a blocked BLMOVE from the tail to the tail.

The id that it "moves" stays where it is, so nothing ever leaves the protocol, and any producer's push wakes it. On a
list that is not empty it returns at once: ask only after a dequeue has answered "empty".
"""

import time

from redis.exceptions import ResponseError

from fastq import keys
from fastq.broker.aio import AsyncPool
from fastq.broker.faults import (
    CONNECT_FAULTS,
    CONNECTION_FAULTS,
    REFUSALS,
    Lost,
    Unsent,
    is_demoted,
    refusal,
    transport_error,
)

__all__ = ["wait_for_tasks"]

ANSWER_WITHIN_S = 5.0


async def wait_for_tasks(lender: AsyncPool, where: str, queue: str, timeout_s: float) -> bool:
    """Return true once the queue has pending tasks, false after ``timeout_s``; raise ``BrokerError``.

    It needs the right to BLMOVE and fails where Redis takes no writes. Cancelled, it gives up its connection.
    """
    try:
        connection = await lender.get_connection()
    except CONNECT_FAULTS as error:
        raise transport_error(Unsent(error), "BLMOVE", where) from error
    in_step = False
    began_s = time.monotonic()
    key = keys.pending(queue)
    try:
        await connection.send_command("BLMOVE", key, key, "RIGHT", "RIGHT", timeout_s)
        reply = await connection.read_response(
            disable_decoding=True, disconnect_on_error=False, timeout=timeout_s + ANSWER_WITHIN_S
        )
        # None is Redis' nil, or redis-py's own time that is up; in the second case the reply may still come.
        in_step = reply is not None or time.monotonic() < began_s + timeout_s + ANSWER_WITHIN_S / 2
        return reply is not None
    except (ResponseError, *REFUSALS) as error:
        in_step = not is_demoted(error)
        raise refusal(error, "BLMOVE") from error
    except CONNECTION_FAULTS as error:
        raise transport_error(Lost(error), "BLMOVE", where) from error
    finally:
        if not in_step:
            await connection.disconnect(nowait=True)
        await lender.release(connection)
