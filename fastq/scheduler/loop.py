"""The loop: drives the engine on a thread until ``stop`` is called, and then makes it clean up."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from fastq.scheduler.engine import Engine

AFTER_A_DEFECT_S: Final = 1.0

_log = logging.getLogger("fastq.scheduler")


class Loop:
    """A loop that can be started once, on a thread of its own; ``on_end`` is called there at the end."""

    def __init__(self, engine: Engine, on_end: Callable[[], None]) -> None:
        self._engine = engine
        self._on_end = on_end
        self._woken = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fastq scheduler", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Run a turn of the engine now, or right after the current one."""
        self._woken.set()

    def stop(self) -> None:
        """End the loop after the current turn, and wait for its end; called from a hook, it does not wait."""
        self._stopping = True
        self.wake()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._woken.clear()
                pause_s = self._guarded_turn()
                if not self._stopping:
                    self._woken.wait(pause_s)
        finally:  # also if a hook has called sys.exit
            try:
                self._engine.clear()
            finally:
                self._on_end()

    def _guarded_turn(self) -> float:
        try:
            return self._engine.turn()
        except Exception:  # noqa: BLE001 - a defect must not end all periodic tasks
            _log.exception("unexpected error in the scheduler; continuing")
            return AFTER_A_DEFECT_S
