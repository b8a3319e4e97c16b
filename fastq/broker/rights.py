"""The commands of Redis that clients and servers need; scripts need the right to each of theirs."""

from typing import Final

ENQUEUING: Final = "del exists hdel hget hset lpush publish sadd set srem wait zadd zrange zrem"
WORKING: Final = f"""
{ENQUEUING} client|id client|list client|tracking expire expireat get hexists hgetall hincrby hlen hmget hrandfield
incrby info lindex llen lpos lrange lrem lset mget pttl rename rpop rpush scan scard setex sismember sscan subscribe
time type unlink zcard zcount zmscore zpopmin zrangebyscore zrangestore zrank zremrangebyrank zremrangebyscore zscore
"""
_DONE_WITHOUT: Final = {
    "client|id",
    "client|list",
    "client|tracking",
    "hrandfield",
    "info",
    "publish",
    "subscribe",
    "time",
    "wait",
}
"""Servers log what they lack of these, and go on; or the right depends on a channel, as the first use shows."""
REQUIRED_OF_WORKERS: Final = tuple(sorted({*WORKING.split()} - _DONE_WITHOUT))
"""A server without one of these could lose tasks half-way, or leave them undone for ever."""
