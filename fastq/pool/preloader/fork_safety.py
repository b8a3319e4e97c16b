"""A check of what an import leaves behind that is unsafe to fork: connections, databases, event loops, threads.

It is done once, in the preloader. Harmless things are ignored: files and datagram sockets, which take each write as a
whole, and threads of libraries that handle forks themselves. OpenBLAS ends its threads before a fork and restarts them
when needed.
"""

import contextlib
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterable

_REMEDY = "or use --start-method spawn"
_ENDED_S = 0.1  # the system may list a thread for a moment after it was joined


def open_descriptors() -> set[int]:
    """Return the descriptors of this process, an empty set where the system does not list them."""
    try:
        fds = {int(name) for name in os.listdir("/dev/fd")}
    except OSError:
        return set()
    return {fd for fd in fds if _is_open(fd)}  # the descriptor of the listing itself is closed by now


def findings(before: set[int]) -> list[str]:
    """Return one line for each thing that is unsafe to inherit; ``before`` are the descriptors before the import."""
    return [*_about_descriptors(open_descriptors() - before), *_about_threads()]


# Descriptors ----------------------------------------------------------------------------------------------------------


def _about_descriptors(fds: Iterable[int]) -> list[str]:
    lines: dict[str, None] = {}
    for fd in sorted(fds):
        with contextlib.suppress(OSError):  # closed meanwhile, or not readable
            if text := _about(fd):
                lines[text] = None
    return list(lines)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _about(fd: int) -> str:
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode):
        peer = _stream_peer(fd)
        return peer and (
            f"its import leaves a connection to {peer} open, and children that share it would read each other's "
            f"answers: close it at the end of the import and connect in @mux.child_start, {_REMEDY}"
        )
    if stat.S_ISREG(mode) and os.pread(fd, 16, 0) == b"SQLite format 3\0":
        return (
            f"its import leaves the SQLite database {_path(fd)} open, which must not be carried across a fork: close "
            f"it at the end of the import and open it in @mux.child_start, {_REMEDY}"
        )
    if "[eventpoll]" in _path(fd):
        return (
            "its import leaves an event loop (epoll) open, and children that share it would take each other's events: "
            f"make clients and sessions that hold one in an async @mux.child_start, {_REMEDY}"
        )
    return ""


def _stream_peer(fd: int) -> str:
    """Return the peer address of a stream connection, "" if it has none."""
    with socket.socket(fileno=os.dup(fd)) as sock:
        if sock.type != socket.SOCK_STREAM:
            return ""
        address = sock.getpeername()
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    text = os.fsdecode(address)
    return "@" + text[1:] if text.startswith("\0") else text


def _path(fd: int) -> str:
    try:
        return os.readlink(f"/dev/fd/{fd}")
    except OSError:
        return f"at descriptor {fd}"


# Threads --------------------------------------------------------------------------------------------------------------


def _about_threads() -> list[str]:
    if len(_thread_ids()) > 1:
        _run_fork_handlers()
    ours = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    lines = []
    if ours:
        names = ", ".join(f'"{thread.name}"' for thread in ours)
        lines.append(
            f"its import started the thread{'s' if ours[1:] else ''} {names}, which forked children do not have: start "
            f"threads in @mux.child_start, {_REMEDY}"
        )
    known = {os.getpid(), *(thread.native_id for thread in ours)}
    until_s = time.monotonic() + _ENDED_S
    while (others := _thread_ids() - known) and time.monotonic() < until_s:
        time.sleep(_ENDED_S / 10)
    if not others:
        return lines
    if _is_mapped("libgomp"):
        what = f"{len(others)} threads of OpenMP, without which forked children hang where they use it"
        return [*lines, f"its import started {what}: set OMP_NUM_THREADS=1, {_REMEDY}"]
    names = ", ".join(sorted({f'"{_comm(thread)}"' for thread in others}))
    what = f"{len(others)} threads outside Python ({names}), which forked children do not have"
    return [*lines, f"its import started {what}: start what needs them in @mux.child_start, {_REMEDY}"]


def _run_fork_handlers() -> None:
    """Fork once: some libraries end their threads before a fork, so the threads left after it are lost in children."""
    try:
        pid = os.fork()
    except OSError:
        return
    if pid == 0:
        os._exit(0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _thread_ids() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}
    except OSError:
        return {os.getpid(), *(thread.native_id for thread in threading.enumerate() if thread.native_id)}


def _comm(thread: int) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm") as file:
            return file.read().strip()
    except OSError:
        return "?"


def _is_mapped(library: str) -> bool:
    try:
        with open("/proc/self/maps") as file:
            return any(library in line for line in file)
    except OSError:
        return False
