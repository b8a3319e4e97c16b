"""The end of an exception that was thrown into a thread from outside.

CPython up to 3.12 notes for the whole interpreter that one was thrown, and drops the note only where one is raised. So
one that is withdrawn leaves the note: then each call and each turn of a loop looks for it, in all threads, and on 3.11
a thread with a profile or trace function stands still for ever.
"""

from typing import NoReturn

__all__ = ["Settled", "settle"]


class Settled(BaseException):
    """Thrown in place of an exception that came too late."""


def settle() -> NoReturn:
    """Raise what was thrown into this thread; compiled code has no place where it is raised."""
    while True:
        pass
