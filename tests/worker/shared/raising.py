"""The error that something raises."""

from collections.abc import Callable


def raised(act: Callable[[], object]) -> BaseException:
    """Return the error of a call that must raise one."""
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("nothing was raised")
