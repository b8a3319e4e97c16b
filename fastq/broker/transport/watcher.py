"""Run one program and end it when the process that started this one ends, however it ends.

Run by path as a program of its own (see ``embedded``), so it imports nothing of fastq. It wakes when its standard input
is readable or closed: then the owner wants the program to end, or is gone. Once a second it also looks at its parent,
because a process forked from the owner keeps that pipe open. If the watcher itself is killed, Linux ends the program.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

STOP_TIMEOUT_S = 10.0
_PR_SET_PDEATHSIG = 1


def watch(owner_pid: int, scratch_directory: str, command: list[str]) -> int:
    """Run ``command`` until it ends or the owner does, remove the directory in that case, and return an exit code."""
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=_end_with_watcher,  # noqa: PLW1509 - this process has one thread
        close_fds=False,  # the program, a server, keeps the lock of its data directory
    )
    pause_s = 0.02  # short at first: a program that cannot start ends at once
    while program.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], pause_s)
        pause_s = min(1.0, pause_s * 1.5)
        if readable or os.getppid() != owner_pid:
            _stop(program)
            shutil.rmtree(scratch_directory, ignore_errors=True)
            return 0
    return program.returncode


def _end_with_watcher() -> None:
    # This runs between fork and exec. The signal is tied to the thread that forked, and the watcher has only one.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    try:
        program.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(watch(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
