"""Death with the main process: at once, with every descendant, even in the middle of a C call that holds the GIL.

The preloader and each child have the read end of a pipe, the lifeline. Only the parent holds the write end: the main
process for the preloader, the preloader for the children. On Linux the kernel itself sends SIGKILL to the whole process
group of the reader when the write end closes (``F_SETOWN`` with a group, ``F_SETSIG``): no code of the reader has to
run. Elsewhere a thread in C waits for the hang-up and does the same for a child; the preloader notices it on its
control socket.
"""

import fcntl
import os
import select
import signal
import sys

from fastq.pool.child._lifeline import watch

_F_SETSIG = 10  # Linux; the fcntl module does not name it


def arm(fd: int, *, by_thread: bool = not sys.platform.startswith("linux")) -> None:
    """Arrange that this process and the group it leads are killed when the pipe at ``fd`` loses its writer."""
    if by_thread:
        watch(fd)
    else:
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    if is_cut(fd):  # the writer was gone before the signal was armed
        os.killpg(0, signal.SIGKILL)


def is_cut(fd: int) -> bool:
    """Return whether the writer is gone."""
    poller = select.poll()
    poller.register(fd, 0)
    return bool(poller.poll(0))
