"""Semaphores in Redis, as in asynq's x/rate: a sorted set of holders, scored by the time at which their tokens end."""

from typing import NamedTuple

from fastq.broker.operation import Flow, Operation, Pause, scripted
from fastq.broker.transport.exchange import ATTEMPTS, backoff_s
from fastq.errors import BrokerError
from fastq.wire import keys


class Token(NamedTuple):
    """A token: its semaphore, the task that holds it, and its end (Unix seconds)."""

    scope: str
    holder: str
    deadline_s: int


def acquire_token(token: Token, max_tokens: int, now_s: int) -> Flow[bool]:
    """Take a token; False if none is free.

    If the reply is lost, the flow looks whether it got the token: a second call would count its token as another
    holder's.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return bool((yield _acquire(token, max_tokens, now_s)))
        except BrokerError as error:
            if not error.maybe_applied or attempt == ATTEMPTS:
                raise
        yield Pause(backoff_s(attempt))
        if (yield _look(token)) == token.deadline_s:
            return True
    raise AssertionError("unreachable: the last attempt returns or raises")


def _acquire(token: Token, max_tokens: int, now_s: int) -> Operation[int]:
    args = (max_tokens, now_s, token.deadline_s, token.holder)
    return scripted("acquire", (keys.semaphore(token.scope),), args, int)


def _look(token: Token) -> Operation[float | None]:
    key = keys.semaphore(token.scope)
    return Operation("ZSCORE", (key,), (token.holder,), _score, idempotent=True)


def _score(reply: bytes | float | None) -> float | None:
    return None if reply is None else float(reply)


def release_token(scope: str, holder: str) -> Operation[bool]:
    """Return a token; False if the holder has none any more."""
    return Operation("ZREM", (keys.semaphore(scope),), (holder,), bool, idempotent=True)


def count_tokens(scope: str, now_s: int) -> Operation[int]:
    """Count the tokens that are held and have not ended."""
    return Operation("ZCOUNT", (keys.semaphore(scope),), (now_s, "+inf"), int, idempotent=True)
