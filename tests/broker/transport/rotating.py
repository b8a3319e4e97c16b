"""A function that returns the credentials of the moment."""

from typing import Any

given: Any = None
"""What it returns, or raises."""
calls = 0


def current() -> Any:
    global calls  # noqa: PLW0603 - the name of the function is all that the code under test has
    calls += 1
    if isinstance(given, Exception):
        raise given
    return given
