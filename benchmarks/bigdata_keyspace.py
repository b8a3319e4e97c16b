"""A keyspace with a million tasks and 100 000 groups, for the benchmark on big data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis

from fastq.wire import keys
from fastq.wire.codec import TaskMessage, encode_task_message

QUEUE = "default"
ID_FORMAT = "00000000-0000-4000-8000-%012d"
SAMPLE_ID = ID_FORMAT % 0
AT_ONCE = 20_000
NOW_NS = 1_800_000_000 * 10**9
_FAILURE: Final[Mapping[str, Any]] = {"retried": 1, "last_failed_at": 1_700_000_000}

FILL = """
local first, count, state, before, after, group, groups = unpack(ARGV)
for n = first, first + count - 1 do
  local id = string.format("00000000-0000-4000-8000-%012d", n)
  local task = KEYS[2] .. id
  redis.call("HSET", task, "msg", before .. id .. after, "state", state)
  if state == "aggregating" then
    local name = group .. math.floor(n % groups)
    redis.call("HSET", task, "group", name)
    redis.call("ZADD", KEYS[1] .. name, n, id)
    redis.call("SADD", KEYS[3], name)
  elseif state == "pending" then
    redis.call("HSET", task, "pending_since", "1700000000000000000")
    redis.call("LPUSH", KEYS[1], id)
  else
    redis.call("ZADD", KEYS[1], 4000000000 + n, id)
  end
end
"""


def fill(db: Redis, state: str, count: int, groups: int = 1, first: int = 0, error: str = "TimeoutError: read") -> None:
    """Put so many tasks of 100 bytes into a state, 20 000 a call; grouped ones evenly into so many groups."""
    failed: Mapping[str, Any] = {**_FAILURE, "error_msg": error} if state in ("retry", "archived") else {}
    message = TaskMessage(type="t", payload=b"p" * 100, id=SAMPLE_ID, queue=QUEUE, retry=25, timeout=1800, **failed)
    before, after = encode_task_message(message).split(SAMPLE_ID.encode())
    place = keys.group_prefix(QUEUE) if state == "aggregating" else f"{keys.queue_prefix(QUEUE)}{state}"
    names = (place, keys.task_prefix(QUEUE), keys.groups(QUEUE))
    script: Any = db.register_script(FILL)
    for start in range(first, first + count, AT_ONCE):
        number = min(AT_ONCE, first + count - start)
        script(keys=names, args=(start, number, state, before, after, "group-", groups))
    db.sadd(keys.all_queues(), QUEUE)


@dataclass(frozen=True)
class Size:
    """The number of tasks and groups."""

    tasks: int
    groups: int


def prepare(db: Redis, kind: str, size: Size) -> None:
    """Empty Redis, and fill it."""
    db.flushall()
    if kind == "mixed":
        tenth = size.tasks // 10
        shares = {"pending": 4 * tenth, "completed": 3 * tenth, "scheduled": tenth, "retry": tenth}
        first = 0
        for state, count in shares.items():
            fill(db, state, count, first=first)
            first += count
        fill(db, "aggregating", tenth, size.groups, first)
        fill(db, "archived", min(10_000, tenth), first=first + tenth)
    else:
        fill(db, "aggregating" if kind == "one group" else kind, size.tasks)
