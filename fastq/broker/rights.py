"""The Redis commands that clients and servers need the right to, including those that their scripts call."""

from typing import Final

ENQUEUING: Final = "del exists hdel hget hmget hset lpush publish sadd set srem time wait zadd zmscore zrange zrem"
WORKING: Final = f"""
{ENQUEUING} client|id client|list client|tracking expire expireat get hexists hgetall hincrby hlen hrandfield hscan
incrby info lindex llen lpos lrange lrem lset mget pttl rename rpop rpush scan scard setex sismember sscan subscribe
type unlink zcard zcount zpopmax zpopmin zrangebyscore zrangestore zrank zremrangebyrank zremrangebyscore zscore
"""
_DONE_WITHOUT: Final = {
    "client|id",
    "client|list",
    "client|tracking",
    "hrandfield",
    "hscan",
    "info",
    "publish",
    "subscribe",
    "time",
    "wait",
}
"""A server goes on without the right to these commands, and logs what it lacks.

For some, the right depends on a channel, so that only the first use shows it.
"""
REQUIRED_OF_WORKERS: Final = tuple(sorted({*WORKING.split()} - _DONE_WITHOUT))
"""A server without one of these rights could lose tasks half-way, or never finish them."""
