"""How many handlers of a server live, judged by the kernel: each process that runs one holds one of the slots' locks.

A POSIX lock belongs to a process and ends with it, however it dies, and before its parent can know of that. So a
handler that finds no lock free has come to life while every slot had a living one.
"""

import fcntl
import os
import threading
from typing import Final


class SlotLock:
    """A lock on a byte of the server's file, held while this process runs a handler."""

    def __init__(self, path: str, slots: int) -> None:
        self._fd: Final = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._slots = slots
        self._byte = -1
        self._plain = 0
        self._coroutines = 0
        self._turn = threading.Lock()

    def enter(self, *, is_async: bool, coroutines: int) -> bool:
        """Take a slot for a handler that begins; false if there is none that it may have."""
        with self._turn:
            if is_async:
                self._coroutines += 1
            else:
                self._plain += 1
            alone = self._plain == 0 if is_async else (self._plain, self._coroutines) == (1, 0)
            return alone and self._coroutines <= coroutines and self._locked()

    def leave(self, *, is_async: bool) -> None:
        """Give the slot back with the last handler of this process."""
        with self._turn:
            if is_async:
                self._coroutines -= 1
            else:
                self._plain -= 1
            if not self._plain and not self._coroutines and self._byte >= 0:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, self._byte)
                self._byte = -1

    def _locked(self) -> bool:
        if self._byte >= 0:
            return True
        for byte in range(self._slots):
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            except OSError:
                continue
            self._byte = byte
            return True
        return False
