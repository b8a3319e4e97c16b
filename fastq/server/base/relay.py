"""Calls from one part of a server to another part that is created later."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Relay(Generic[P]):
    """A function that passes each call on to the receivers connected so far, in the order of connection."""

    def __init__(self) -> None:
        self._receivers: list[Callable[P, None]] = []

    def connect(self, receiver: Callable[P, None]) -> None:
        """Pass further calls on to this function, too."""
        self._receivers.append(receiver)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call the receivers."""
        for receiver in self._receivers:
            receiver(*args, **kwargs)
