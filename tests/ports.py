"""Ports for servers that tests start, each for one process of tests: another one that runs beside it gets others.

They are below those that systems give to outgoing connections, and a locked file stands for each: a port that was only
looked at could be anybody's before the server is there.
"""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

FIRST, COUNT = 12_000, 10_000
"""What is 10000 above one of them, where the nodes of a cluster talk, is none of them."""


def free_port(also: int = 0) -> int:
    """Return a port nobody listens on, and nobody on the one ``also`` above it; it is this process' for good."""
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(FIRST, FIRST + COUNT)
        if _claim(port) and _is_free(port) and (not also or _is_free(port + also)):
            return port


def _claim(port: int) -> bool:
    directory = Path(tempfile.gettempdir(), f"fastq-test-ports-{os.getuid()}")
    directory.mkdir(exist_ok=True)
    lock = os.open(directory / str(port), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    return True  # the file stays open, and with it locked, until this process ends


def _is_free(port: int) -> bool:
    with socket.socket() as listener, suppress(OSError):
        listener.bind(("127.0.0.1", port))
        return True
    return False
