"""ACL rules for Redis users: for each role of fastq, the keys, channels and commands that it needs.

A role's commands include those of its scripts, since Redis checks them one by one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from fastq.broker.rights import ENQUEUING, WORKING
from fastq.wire import keys

_CONNECTION: Final = "asking client|setname cluster|slots command eval evalsha ping select"
_READING: Final = """
cluster|info dbsize exists get hexists hget hgetall hkeys hmget hscan hstrlen info lindex llen lpos lrange memory|usage
mget pttl scan scard sismember smembers srandmember sscan time type zcard zcount zrange zrangebyscore zrank zrevrange
zscan zscore
"""
_SERVERS: Final = (f"{keys.all_servers()}*", f"{keys.all_workers()}*", keys.server_notice("{*"))
_SCHEDULERS: Final = (f"{keys.all_schedulers()}*", keys.scheduler_history("*"), keys.scheduler_ticks())
_ORDERS: Final = (keys.CANCEL_CHANNEL, keys.CANCEL_AS_CHANNEL, keys.control_channel("*"))
_INBOXES: Final = (keys.inbox_channel("*"),)


class _Role(NamedTuple):
    """What a role may do, beyond the keys of its queues and the list of queues."""

    commands: str
    keys: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


ROLES: Final = {
    "producer": _Role(f"{ENQUEUING} llen subscribe", channels=_INBOXES),
    "worker": _Role(
        WORKING,
        (*_SERVERS, keys.semaphore("*")),
        (*_ORDERS, *_INBOXES),
    ),
    "scheduler": _Role(f"{ENQUEUING} expire get hincrby hlen llen scard zcard zremrangebyrank", _SCHEDULERS),
    "inspector": _Role(_READING, (*_SERVERS, *_SCHEDULERS)),
    "admin": _Role(
        f"""{ENQUEUING} {_READING} hincrby hlen lpop lrem lset ltrim pubsub|numsub rpush slowlog|get
        subscribe unlink zmscore zremrangebyrank zremrangebyscore""",
        (*_SERVERS, *_SCHEDULERS),
        (*_ORDERS, *_INBOXES),
    ),
}


def acl_rules(roles: Sequence[str], queues: Sequence[str] = ("*",)) -> str:
    """Return the rules of a user with these roles, for ACL SETUSER or an ACL file.

    ``queues`` are names or glob patterns. The rules replace the user's old rules; its password stays, and so
    does "on" or "off". A queue whose keys no pattern can name raises ``ValueError``.
    """
    for queue in queues:
        if not queue or "}" in queue or any(char.isspace() or char in "\"'" for char in queue):
            raise ValueError(f"{queue!r} is no pattern of queues; write ? in place of a blank or quote")
    chosen = [ROLES[role] for role in roles]
    words = {word for role in chosen for word in (*_CONNECTION.split(), *role.commands.split())}
    names = [keys.all_queues(), *(name for role in chosen for name in role.keys)]
    names += [f"{keys.queue_prefix(queue)}*" for queue in queues]
    channels = [name for role in chosen for name in role.channels]
    if "publish" in words:
        channels += [keys.due_channel(queue) for queue in queues]
    return " ".join(
        (
            "resetkeys resetchannels -@all",
            *(f"~{name}" for name in dict.fromkeys(names)),
            *(f"&{name}" for name in dict.fromkeys(channels)),
            *(f"+{word}" for word in sorted(words)),
        )
    )
