"""Redis' errors in fastq's words: what happened, whether the request may have been carried out, and what to do.

redis-py's exceptions stop here; everything above the broker sees ``BrokerError`` and its kin.
"""

from dataclasses import dataclass

from redis import exceptions as redis_errors

from fastq.errors import (
    BrokerAuthError,
    BrokerConnectionError,
    BrokerError,
    BrokerOutOfMemoryError,
    BrokerReadOnlyError,
    BrokerTimeoutError,
)

__all__ = ["CONNECTION_FAULTS", "REFUSALS", "Lost", "Unsent", "refusal", "transport_error"]

CONNECTION_FAULTS = (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError)
"""What redis-py raises when the connection, not the command, failed."""

REFUSALS = (
    redis_errors.AuthenticationError,
    redis_errors.AuthorizationError,
    redis_errors.BusyLoadingError,
)
"""Subclasses of redis-py's ConnectionError that are in truth an error reply: Redis answered, and did nothing."""

_HINTS: tuple[tuple[tuple[str, ...], type[BrokerError], str], ...] = (
    (
        ("NOAUTH", "Authentication required"),
        BrokerAuthError,
        "Redis asks for a password; give it in the URL: redis://:password@host:port",
    ),
    (
        ("WRONGPASS", "invalid username-password", "invalid password", "without any password configured"),
        BrokerAuthError,
        "Redis refuses the user name or password of the URL. A user name is sent to Redis (asynq ignores it): "
        "to log in as the default user write redis://:password@host:port",
    ),
    (("NOPERM", "no permissions"), BrokerAuthError, "the Redis user may not do this; extend its ACL rules"),
    (
        ("READONLY", "read only replica"),
        BrokerReadOnlyError,
        "this Redis is a read-only replica; point the URL at the master, or use redis-sentinel://",
    ),
    (
        ("OOM", "used memory > 'maxmemory'"),
        BrokerOutOfMemoryError,
        "Redis has reached its maxmemory and takes no writes; nothing was written. Free memory or raise maxmemory",
    ),
    (
        ("LOADING", "is loading the dataset"),
        BrokerConnectionError,
        "Redis is still loading its data after a start; try again in a moment",
    ),
    (
        ("MISCONF",),
        BrokerError,
        "Redis takes no writes because it cannot save to disk; see its log and its free disk space",
    ),
    (
        ("UNBLOCKED",),
        BrokerConnectionError,
        "this Redis became a replica while it was being waited for",
    ),
    (
        ("BUSY",),
        BrokerTimeoutError,
        "Redis is busy with a script that runs too long",
    ),
    (("CLUSTERDOWN", "MASTERDOWN"), BrokerConnectionError, "the part of the Redis cluster that holds this key is down"),
    (("unknown command",), BrokerError, "this Redis lacks a command that fastq needs; fastq needs Redis 6.2 or newer"),
)


@dataclass(frozen=True, slots=True)
class Lost:
    """Stand for a reply that never came: the request was sent, what became of it is not known."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Unsent:
    """Stand for the reply to a request that never left, for want of a connection."""

    error: Exception


def refusal(error: Exception, operation: str) -> BrokerError:
    """Translate an error reply: Redis answered, and did not do it."""
    text = str(error)
    name = type(error).__name__
    for marks, kind, hint in _HINTS:
        # redis-py strips the code of the errors it knows (the class then stands for it), so marks are looked for in
        # the text and by class; inside scripts Redis 6.2 wraps the code in a sentence of its own.
        if any(mark in text for mark in marks) or _CLASS_MARKS.get(name) in marks:
            return kind(f"{hint} (Redis: {text})", operation=operation)
    return BrokerError(f"Redis refused it: {text}", operation=operation)


_CLASS_MARKS = {
    "AuthenticationError": "NOAUTH",
    "AuthenticationWrongNumberOfArgsError": "WRONGPASS",
    "NoPermissionError": "NOPERM",
    "ReadOnlyError": "READONLY",
    "OutOfMemoryError": "OOM",
    "BusyLoadingError": "LOADING",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
}


def transport_error(fault: Lost | Unsent, operation: str, where: str) -> BrokerError:
    """Translate a failed connection; ``maybe_applied`` of the result says whether the request was under way."""
    error, sent = fault.error, isinstance(fault, Lost)
    if isinstance(error, REFUSALS):
        return refusal(error, operation)
    timed_out = isinstance(error, (redis_errors.TimeoutError, TimeoutError))
    kind = BrokerTimeoutError if timed_out else BrokerConnectionError
    if not sent:
        why = str(error).rstrip(".")
        text = f"cannot reach Redis at {where}: {why}. Is it running, and is FASTQ_REDIS_URL or --redis right?"
    elif timed_out:
        text = f"Redis at {where} did not answer in time; whether it did what it was asked is not known ({error})"
    else:
        text = f"the connection to Redis at {where} broke before it answered; the outcome is not known ({error})"
    return kind(text, operation=operation, maybe_applied=sent)
