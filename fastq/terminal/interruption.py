"""Ctrl-C that leaves nothing behind: a signal is recorded, and acted on at points where all work can be undone.

An exception in a signal handler could come after a process was started and before it is recorded for its cleanup.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STEP_S: Final = 0.05


class Interrupted(Exception):  # noqa: N818 - no defect
    """Raised when a signal asks the command to end."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        super().__init__(signal.Signals(signum).name)


class Interruption:
    """A guard that records signals while it is entered; ``check`` and ``wait`` raise ``Interrupted`` after one.

    The handlers stay after a signal, so that a second signal cannot kill the process during its cleanup.
    """

    def __init__(self) -> None:
        self._signum = 0
        self._raises = False
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> Self:
        for signum in _SIGNALS:
            # A process started by nohup continues when its terminal is closed.
            if signum is not signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items() if not self._signum else ():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self._signum = self._signum or signum
        if self._raises:
            raise Interrupted(self._signum)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Make a signal raise ``Interrupted`` at once, for example during a read that may wait forever."""
        self._raises = True
        try:
            self.check()
            yield
        finally:
            self._raises = False

    def check(self) -> None:
        """Raise ``Interrupted`` if a signal came."""
        if self._signum:
            raise Interrupted(self._signum)

    def wait(self, seconds: float) -> None:
        """Sleep, or raise ``Interrupted`` when a signal comes."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, _STEP_S))
        self.check()
