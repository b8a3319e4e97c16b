"""``Server``: a server as an object, run in this process or started as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from enum import Enum, auto
from typing import Any, Final, Never

from fastq.broker.operations.health import ping
from fastq.broker.transport.open import open_broker
from fastq.broker.transport.uri import parse_redis_uri
from fastq.errors import BrokerError, FastqError, ServerClosedError, ServerStartError
from fastq.mux import ServeMux
from fastq.pool.main.protocol import PoolStartError
from fastq.server.base.config import ServerConfig, seconds_of
from fastq.server.run import serve
from fastq.server.wiring.process import ProcessOptions
from fastq.worker.shared.names import name_of

EXIT_WITHIN_S: Final = 10.0
"""The time beyond ``shutdown_timeout`` after which a process that has not ended is killed."""
DEFAULT_CONFIG: Final = ServerConfig()


class _State(Enum):
    NEW = auto()
    ACTIVE = auto()
    QUIET = auto()
    CLOSED = auto()


class Server:
    """A server for the handlers of an app: ``run`` in this process, or ``start`` … ``shutdown`` as its own process.

    ``app`` is "module:attr" or a ServeMux that is an attribute of a module, since child processes import it. ``redis``
    is a URL, or None for ``$FASTQ_REDIS_URL`` or the local Redis. ``TypeError`` or ``ValueError`` is raised if ``app``
    or ``redis`` is wrong. A server serves once; after its end ``run`` and ``start`` raise ``ServerClosedError``.
    """

    def __init__(
        self,
        app: str | ServeMux,
        redis: str | None = None,
        config: ServerConfig = DEFAULT_CONFIG,
        **settings: Never,  # accepted only to raise an error that says where settings belong
    ) -> None:
        if not isinstance(app, (str, ServeMux)):
            raise TypeError(f"app must be 'module:attr' or a fastq.ServeMux, not {app!r}")
        if settings:
            listed = ", ".join(f"{name}={settings[name]!r}" for name in settings)
            raise TypeError(f"settings of a server are its config: Server(..., config=ServerConfig({listed}))")
        if isinstance(redis, ServerConfig):
            raise TypeError("redis must be a URL, not a ServerConfig: write Server(..., config=ServerConfig(...))")
        if redis is not None:
            if not isinstance(redis, str):
                raise TypeError(f"redis must be a URL, since another process is to connect to it, not {redis!r}")
            parse_redis_uri(redis)
        if not isinstance(config, ServerConfig):
            raise TypeError(f"config must be a fastq.ServerConfig, not {config!r}")
        self._options = ProcessOptions(name_of(app, "app"), redis, config)
        self._state = _State.NEW
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        """Return the id of the process that ``start`` started, None if there is none."""
        return self._process.pid if self._process is not None else None

    def run(self) -> None:
        """Serve until a signal ends it; this process is the main process, and its log goes to stderr.

        It works only in the main thread. SIGTERM and SIGINT shut down, SIGTSTP is ``quiet``, SIGHUP reloads the app.
        ``ServerStartError`` is raised if the server cannot begin or go on.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("Server.run() handles the process' signals: call it in the main thread, or use start()")
        self._begin()
        try:
            serve(self._options)
        except (PoolStartError, BrokerError) as error:
            raise ServerStartError(str(error)) from error
        finally:
            self._state = _State.CLOSED

    def start(self) -> None:
        """Start a process that serves, and return once it does; raise ``ServerStartError`` if it cannot.

        The process ends with ``shutdown``, and when this process ends.
        """
        self._begin()
        answer_fd, far_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fastq.server.launch", str(far_fd)],
                stdin=subprocess.PIPE,
                pass_fds=[far_fd],
                start_new_session=True,  # Ctrl-C is for this process
                text=True,
            )
        finally:
            os.close(far_fd)
        try:
            with os.fdopen(answer_fd) as answers:
                answer = self._ask(self._process, answers)
        except BaseException:
            self._end(self._process)
            raise
        if "error" in answer:
            self._end(self._process)
            raise ServerStartError(answer["error"])

    def quiet(self) -> None:
        """Make the started process fetch no more tasks and finish those that it has; without one, do nothing."""
        if self._state is _State.ACTIVE and self._process is not None:
            self._process.send_signal(signal.SIGTSTP)
            self._state = _State.QUIET

    def shutdown(self) -> None:
        """End the started process as SIGTERM does, and wait for its end; without one, do nothing.

        ``FastqError`` is raised if it had ended by itself, or had to be killed.
        """
        process = self._process
        if process is None or self._state is _State.CLOSED:
            return
        code = process.poll()
        if code is None and self._end(process) < 0:
            raise FastqError(f"the server's process {process.pid} did not shut down in time and was killed")
        if code is not None:
            self._end(process)
            raise FastqError(f"the server's process {process.pid} had ended by itself with exit code {code}")

    def stop(self) -> None:
        """Shut down: another name of ``shutdown``. asynq's ``Stop`` is ``quiet``."""
        self.shutdown()

    def _end(self, process: subprocess.Popen[str]) -> int:
        self._state = _State.CLOSED
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(seconds_of(self._options.config.shutdown_timeout) + EXIT_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        return code

    def ping(self) -> None:
        """Send Redis a PING: ``BrokerError`` if it fails, ``FastqError`` if a started process has ended."""
        process = self._process
        if process is not None and self._state is not _State.CLOSED and (code := process.poll()) is not None:
            raise FastqError(f"the server's process {process.pid} has ended with exit code {code}")
        broker = open_broker(self._options.redis)
        try:
            broker.run(ping())
        finally:
            broker.close()

    def _begin(self) -> None:
        if self._state is _State.CLOSED:
            raise ServerClosedError("the server was shut down; make another one")
        if self._state is _State.QUIET:
            raise RuntimeError("the server is quiet and waits for its shutdown")
        if self._state is _State.ACTIVE:
            raise RuntimeError("the server is already running")
        self._state = _State.ACTIVE

    def _ask(self, process: subprocess.Popen[str], answers: Any) -> dict[str, str]:
        """Send the options to a new process, and return its answer."""
        options = self._options
        order = {"app": options.app, "redis": options.redis, "config": asdict(options.config), "sys_path": sys.path}
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"error": f"the server's process ended with exit code {process.wait()} before it served"}
        answer: dict[str, str] = json.loads(line)
        return answer
