"""How a thread gets rid of an exception that was thrown into it too late.

CPython up to 3.12 has one flag for all threads that says that an exception was thrown into one of them. Only raising it
clears the flag. If it were withdrawn instead, each call and each turn of a loop would look for it, in all threads; on
3.11 a thread with a profile or trace function would stand still for ever. So another one, which does no harm, is thrown
in its place and raised at once.
"""

from typing import NoReturn


class Settled(BaseException):
    """Thrown in place of an exception that came too late."""


def settle() -> NoReturn:
    """Raise what was thrown into this thread; compiled code has no place where it is raised."""
    while True:
        pass
