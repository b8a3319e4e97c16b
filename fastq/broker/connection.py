"""Temporary."""

import redis
import redis.asyncio


def connect(given):
    return (
        redis.Redis.from_url(given or "redis://127.0.0.1:6379/0") if given is None or isinstance(given, str) else given
    )


def connect_async(given):
    return (
        redis.asyncio.Redis.from_url(given or "redis://127.0.0.1:6379/0")
        if given is None or isinstance(given, str)
        else given
    )
