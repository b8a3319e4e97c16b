"""How a thread gets rid of an exception that was thrown into it too late.

CPython up to 3.12 has one flag for all threads that says that an exception was thrown into one of them. Only raising
the exception clears the flag. If the exception were withdrawn instead, all threads would look for it at each call and
each turn of a loop; on 3.11 a thread with a profile or trace function would stand still for ever. So a harmless
exception is thrown in its place and raised at once.
"""

from typing import NoReturn


class Settled(BaseException):
    """Thrown in place of an exception that came too late."""


def settle() -> NoReturn:
    """Run bytecode until the exception that was thrown into this thread is raised; compiled code never raises it."""
    while True:
        pass
