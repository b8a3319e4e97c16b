"""System calls on processes: their memory, their ends, and how to end them."""

import atexit
import contextlib
import io
import os
import resource
import signal
import sys
import threading
from typing import NoReturn

_PAGE = os.sysconf("SC_PAGE_SIZE")
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def kill_group(pid: int) -> None:
    """Send SIGKILL to the process group that ``pid`` leads, if there is one.

    The number of a group is not reused while it has members, so the children of a dead leader are killed, too.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when ``pid`` ends, -1 if the system has none or the process is gone."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def send_signal(pid: int, pidfd: int, signum: int) -> bool:
    """Send a signal to a process; return False if it is gone.

    The pidfd is used unless it is -1: unlike a pid, it never stands for a later process.
    """
    if pidfd >= 0:
        try:
            signal.pidfd_send_signal(pidfd, signum)
            return True
        except ProcessLookupError:
            return False
        except OSError:
            pass  # refused by the seccomp profile of a container
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return False
    return True


def own_rss() -> int:
    """Return the resident bytes of this process, or its peak where the system reports only that."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return peak_rss(resource.getrusage(resource.RUSAGE_SELF))


def rss_of(pid: int) -> int:
    """Return the resident bytes of another process, 0 if it is gone or the system does not report them."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def thread_times(pid: int) -> dict[int, tuple[int, int]]:
    """Return, for each thread of a process, its CPU time in nanoseconds and how often it was given a CPU.

    The result is empty where the system does not report them.
    """
    found = {}
    with contextlib.suppress(OSError):
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            if (times := thread_time(pid, thread)) is not None:
                found[thread] = times
    return found


def thread_time(pid: int, thread: int) -> tuple[int, int] | None:
    """Return the times of one thread, as ``thread_times`` has them; None where the system does not report them."""
    try:
        with open(f"/proc/{pid}/task/{thread}/schedstat", "rb", buffering=0) as file:
            cpu_ns, _, runs = file.read().split()
            return int(cpu_ns), int(runs)
    except (OSError, ValueError):
        return None


def peak_rss(usage: resource.struct_rusage) -> int:
    """Return the peak resident bytes of a resource usage, whose unit depends on the system."""
    return usage.ru_maxrss * _RSS_UNIT


def end_process() -> NoReturn:
    """End this process as Python does, but without tearing down its modules.

    The teardown would copy most of the memory that a forked process shares, and would take longer than many a task.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads; has no public name
    atexit._run_exitfuncs()
    leave(None)


def describe_status(status: int) -> str:
    """Describe how a process ended from its ``wait`` status: ``signal SIGSEGV`` or ``exit code 3``."""
    return describe_code(os.waitstatus_to_exitcode(status))


def describe_code(code: int) -> str:
    """Describe an exit code that is negative for a signal, as in ``subprocess``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def write_lines_at_once() -> None:
    """Make stdout and stderr line-buffered, also for files and pipes: a killed process loses what it holds back."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # else there is no stream, or the app has replaced it
            stream.reconfigure(line_buffering=True)


def flush_output() -> None:
    """Flush stdout and stderr."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # the reader is gone, or the stream is closed
                stream.flush()


def leave(error: BaseException | None) -> NoReturn:
    """End this process at once, with the output and status of a program that ends with ``error`` (None for success).

    As with processes of ``multiprocessing``, exit functions are not run and threads are not waited for.
    """
    status = 1
    try:
        if isinstance(error, SystemExit):
            status = _exit_status(error.code)
        elif error is None:
            status = 0
        else:
            sys.excepthook(type(error), error, error.__traceback__)
        flush_output()
    finally:
        os._exit(status)


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1
