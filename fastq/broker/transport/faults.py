"""Redis' errors in fastq's words: what happened, whether the request may have been carried out, and what to do.

redis-py's exceptions stop here; everything above the broker sees ``BrokerError`` and its subclasses.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from redis import exceptions as redis_errors

from fastq.errors import (
    BrokerAuthError,
    BrokerConnectionError,
    BrokerError,
    BrokerNotConfirmedError,
    BrokerOutOfMemoryError,
    BrokerReadOnlyError,
    BrokerTimeoutError,
)


class CredentialsError(redis_errors.ConnectionError):
    """Raised when there are no credentials to log in with."""


CONNECTION_FAULTS = (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError)
"""redis-py's exceptions for a failed connection, in contrast to a failed command."""

CONNECT_FAULTS = (redis_errors.RedisError, OSError, UnicodeError)
"""The exceptions of a failed attempt to connect: also a refused login or database, or a bad host name."""

REFUSALS = (
    redis_errors.AuthenticationError,
    redis_errors.AuthorizationError,
    redis_errors.BusyLoadingError,
    CredentialsError,
)
"""Subclasses of redis-py's ConnectionError that are no failed connection: nothing was done."""

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
    (("DB index is out of range",), BrokerError, "this Redis has fewer databases than the number in the URL"),
    (
        ("NOPERM", "no permissions", "The user executing the script"),
        BrokerAuthError,
        "the Redis user may not do this; extend its ACL rules, which fastq acl prints",
    ),
    (
        ("READONLY", "read only replica", "previous master is now a slave"),
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
        BrokerReadOnlyError,
        "Redis takes no writes because it cannot save to disk; see its log and its free disk space",
    ),
    (
        ("NOREPLICAS",),
        BrokerReadOnlyError,
        "Redis takes no writes because too few of its replicas are there; see its min-replicas-to-write",
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
    (
        ("TRYAGAIN", "non local key"),
        BrokerConnectionError,
        "the cluster is moving this queue to another node; try again in a moment",
    ),
    (("CLUSTERDOWN", "MASTERDOWN"), BrokerConnectionError, "the part of the Redis cluster that holds this key is down"),
    (
        ("unknown command", "unknown subcommand"),
        BrokerError,
        "this Redis does not have the command: its provider has disabled it, or it is older than 6.2",
    ),
)


_TRIES = {"READONLY": 4, "TRYAGAIN": 9}
"""How often an enqueue that Redis refuses is tried, by the first of the marks for which the refusal's text is searched.

A replica is left for a new connection within 0.6 s. A slot moves in pieces, each of which may take 3 s.
"""


@dataclass(frozen=True, slots=True)
class NoReply:
    """Stands for the missing reply to a request that was sent, and may have been carried out.

    ``where`` is the address of the server, if known. ``unconfirmed`` says that replicas were to confirm the request.
    """

    error: Exception
    where: str = ""
    unconfirmed: "Unconfirmed | None" = None


@dataclass(frozen=True, slots=True)
class Unsent:
    """Stands for the missing reply to a request that was never sent, because there was no connection."""

    error: Exception
    where: str = ""


class Silent(Unsent):
    """Stands for the missing reply to a request that was not sent, because its node has stopped answering."""

    __slots__ = ()


class ClientClosedError(ConnectionError):
    """The fault of calls that were under way when their client was closed; never raised."""


def given_up(reply: Any) -> Any:
    """Return a reply to a client that was closed; if it is missing, the reason becomes ``ClientClosedError``."""
    return replace(reply, error=ClientClosedError()) if isinstance(reply, NoReply | Unsent) else reply


class Unconfirmed(Exception):  # noqa: N818 - in place of a reply, as an error reply is; never raised
    """A write that Redis carried out but too few replicas have: the reason, and the reply to it."""

    def __init__(self, why: str, reply: Any = None) -> None:
        super().__init__(why)
        self.reply = reply


def refusal(error: Exception, operation: str) -> BrokerError:
    """Translate an error reply: Redis refused the operation or broke it off halfway, or too few replicas have it."""
    text = without_arguments(error)
    if isinstance(error, Unconfirmed):
        text = f"written, but {text}; a failover may lose it"
        return BrokerNotConfirmedError(text, operation=operation, maybe_applied=True)
    if isinstance(error, CredentialsError):
        return BrokerAuthError(text, operation=operation)
    # redis-py removes the code of the errors it knows, and has one class for several codes: so the text is checked
    # first. In scripts, Redis 6.2 wraps the code in a sentence of its own: so a mark may be anywhere in the text.
    found = _hint_for(lambda mark: mark in text) or _hint_for(_CLASS_MARKS.get(type(error).__name__, "").__eq__)
    if found is None:
        return BrokerError(
            f"Redis refused the operation: {text}", operation=operation, maybe_applied=_is_half_done(text)
        )
    marks, kind, hint = found
    if isinstance(error, redis_errors.AskError):  # MOVED is one, too; the text of both is only slot and address
        text = f"sent from node to node, at last to {error.host}:{error.port}"
    result = kind(f"{hint} (Redis: {text})", operation=operation, maybe_applied=_is_half_done(text))
    if not result.maybe_applied:
        result.tries = _TRIES.get(marks[0], 1)
    return result


def without_arguments(error: Exception) -> str:
    """Return the text of an error reply, without the arguments of a command that Redis does not know.

    The arguments of AUTH are the password, and those of others may be payloads.
    """
    return str(error).partition(", with args beginning with")[0]


_CONNECTING = re.compile(r"Error (?P<number>.*) connecting to (?P<where>\S*?)\.(?: (?P<why>.*))?", re.DOTALL)
_CALL_FAILED = re.compile(r"(?:\[Errno (\d+)\] )?Connect call failed (\([^()]*\))")


def _why_unreachable(text: str, where: str) -> str:
    """Return the reason in a text of redis-py, without the address: the caller's text names it already."""
    found = _CONNECTING.fullmatch(text)
    if found is None or found["where"] != where:
        return text.rstrip(".")
    number, why = found["number"], found["why"] or found["number"]
    if number.isdigit() and _CALL_FAILED.match(why):
        why = os.strerror(int(number))
    return _CALL_FAILED.sub(lambda one: f"{os.strerror(int(one[1]))} {one[2]}" if one[1] else one[0], why).rstrip(".")


_INSIDE_SCRIPT = "user_script"
"""The text of an error that ended a script contains this, in every version of Redis."""


def was_turned_away(error: Exception) -> bool:
    """Return whether Redis rejected a request unread, because it rejects all requests for the moment.

    Such a request had no effect, so it may be sent again.
    """
    text = str(error)
    return _INSIDE_SCRIPT not in text and (isinstance(error, _CLOSED_DOORS) or text.startswith("BUSY "))


_CLOSED_DOORS = (
    redis_errors.BusyLoadingError,
    redis_errors.ClusterDownError,
    redis_errors.MasterDownError,
    redis_errors.TryAgainError,
)


def is_timeout(error: Exception) -> bool:
    """Return whether a server did not answer in time."""
    return isinstance(error, (redis_errors.TimeoutError, TimeoutError))


def is_demoted(error: Exception) -> bool:
    """Return whether a replica answered; if it was the master before, a new connection may lead to the new master."""
    # Before Redis 7 the code of an error inside a script is in the middle of the text.
    # redis-py's own connections for Sentinel close instead, and raise an error with another text.
    text = str(error)
    return isinstance(error, redis_errors.ReadOnlyError) or "-READONLY" in text or "master is now a slave" in text


def _is_half_done(text: str) -> bool:
    """Return whether an error may have ended a script halfway.

    Only a key of a wrong type can do that; every other error would occur at the first write.
    """
    return _INSIDE_SCRIPT in text and "WRONGTYPE" in text


def _hint_for(applies: Callable[[str], bool]) -> tuple[tuple[str, ...], type[BrokerError], str] | None:
    return next((hint for hint in _HINTS if any(map(applies, hint[0]))), None)


_CLASS_MARKS = {
    "AuthenticationError": "NOAUTH",
    "AuthenticationWrongNumberOfArgsError": "WRONGPASS",
    "NoPermissionError": "NOPERM",
    "ReadOnlyError": "READONLY",
    "OutOfMemoryError": "OOM",
    "BusyLoadingError": "LOADING",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "MovedError": "TRYAGAIN",
    "AskError": "TRYAGAIN",
}


def transport_error(fault: NoReply | Unsent, operation: str, where: str) -> BrokerError:
    """Translate a failed connection; ``maybe_applied`` of the result is true if the request was sent."""
    error, sent = fault.error, isinstance(fault, NoReply)
    for refused in (error, error.__cause__):  # redis-py's asyncio connection wraps the errors of its connecting
        if isinstance(refused, (*REFUSALS, redis_errors.ResponseError)) or (
            isinstance(refused, Exception) and is_demoted(refused)
        ):
            return refusal(refused, operation)
    timed_out = is_timeout(error)
    where, why = fault.where or where, without_arguments(error)
    if isinstance(error, ClientClosedError):
        text = f"before Redis at {where} answered; the outcome is not known" if sent else "before this was sent"
        closed = BrokerConnectionError(f"the client was closed {text}", operation=operation, maybe_applied=sent)
        closed.transient = False  # to try again would open the client again
        return closed
    kind = BrokerTimeoutError if timed_out else BrokerConnectionError
    if isinstance(fault, Silent):
        text = f"Redis at {where} has stopped answering, so this was not sent ({why})"
    elif not sent:
        why = _why_unreachable(why, where)
        text = f"cannot reach Redis at {where}: {why}. Is it running, and is FASTQ_REDIS_URL or --redis right?"
    elif timed_out:
        text = f"Redis at {where} did not answer in time; whether it carried out the operation is not known ({why})"
    else:
        text = f"the connection to Redis at {where} broke before it answered; the outcome is not known ({why})"
    result = kind(text, operation=operation, maybe_applied=sent)
    if isinstance(fault, NoReply) and fault.unconfirmed is not None:
        result.if_applied = refusal(fault.unconfirmed, operation)
    return result
