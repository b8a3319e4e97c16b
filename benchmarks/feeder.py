"""A feeder that keeps a queue about as long as it is told, in Redis' own time: a script that clones a message.

What it makes is what ``enqueue`` leaves, each task with an id of its own. It is sent as EVAL, so that Redis counts its
time apart from that of fastq's scripts (EVALSHA).
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from fastq.broker.operations.dequeue import MAX_BATCH_TASKS
from fastq.wire import keys
from fastq.wire.codec import TaskMessage, encode_task_message

STEP: Final = 100
"""New tasks a call at most: what Redis does in one go."""
CALLS: Final = MAX_BATCH_TASKS // STEP
"""Calls a round trip: together as many tasks as a worker takes with one dequeue."""
QUEUE: Final = "default"
MADE: Final = "bench:made"
PLACE: Final = b"00000000-0000-4000-8000-000000000000"

# Returns how many there were and how many were made.
SCRIPT: Final = """
local there = redis.call("LLEN", KEYS[1])
local count = math.min(tonumber(ARGV[1]) - there, tonumber(ARGV[2]))
if count <= 0 then return {there, 0} end
local first = redis.call("INCRBY", KEYS[2], count) - count
local ids = {}
for at = 1, count do
  local id = string.format("00000000-0000-4000-8000-%012x", first + at)
  redis.call("HSET", ARGV[3] .. id, "msg", ARGV[5] .. id .. ARGV[6], "state", "pending", "pending_since", ARGV[4])
  ids[at] = id
end
redis.call("LPUSH", KEYS[1], unpack(ids))
return {there, count}
"""


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a round trip: the tasks processed so far, when, and the fewest pending since the one before."""

    processed: int
    at_s: float
    lowest: int
    made: int


@contextmanager
def preferred() -> Iterator[None]:
    """Let this process run as soon as it has something to do, where that is allowed."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, usual - 10)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, usual)


class Feeder:
    """Keep the queue ``default`` at a depth: fill it up to a dequeue above, a round trip at a time."""

    def __init__(self, db: Any, depth: int, payload: bytes = bytes(100)) -> None:
        self._db = db
        self._full = depth + MAX_BATCH_TASKS
        # With an attempt left: a last one never waits in a child, so that the worker takes such tasks one by one.
        task = TaskMessage("bench:noop", payload, PLACE.decode(), QUEUE, retry=25, timeout=1800)
        self._before, self._after = encode_task_message(task).split(PLACE)

    def fill(self) -> None:
        """Bring an empty queue to its depth, with nobody at work."""
        while self._feed(1000).made:
            pass

    def look(self) -> Look:
        """Fill up what is missing, and look."""
        return self._feed(STEP)

    def _feed(self, step: int) -> Look:
        pipeline = self._db.pipeline(transaction=False)
        words = (self._full, step, keys.task_prefix(QUEUE), time.time_ns(), self._before, self._after)
        for _ in range(CALLS):
            pipeline.eval(SCRIPT, 2, keys.pending(QUEUE), MADE, *words)
        pipeline.get(keys.processed_total(QUEUE))
        *fed, processed = pipeline.execute()
        at_s = time.perf_counter()
        return Look(int(processed or 0), at_s, min(there for there, _ in fed), sum(made for _, made in fed))
