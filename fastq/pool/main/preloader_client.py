"""The main process's client of the preloader: starts it, sends orders, passes on its messages, notices its death.

Wakes on the control socket. If the preloader dies or stops reading, ``on_lost`` is called once. Then another client is
made; this one is never used again.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from fastq.errors import FastqError
from fastq.pool.main.config import PoolConfig
from fastq.pool.shared.control import Channel, ChannelBusyError, ChannelClosedError, Frame
from fastq.pool.shared.descriptors import given_soft_limit
from fastq.pool.shared.processes import describe_code, kill_group

_SETTLE_S = 0.5
_REAP_S = 0.005


class PoolStartError(FastqError):
    """Raised when the app cannot be loaded or children do not start; the text is for the user.

    ``is_misuse`` is true if a setting names an object that does not exist or cannot be used.
    """

    def __init__(self, text: str, *, is_misuse: bool = False) -> None:
        super().__init__(text)
        self.is_misuse = is_misuse

    @classmethod
    def of_frame(cls, frame: Frame, name: str) -> "PoolStartError":
        """Return the error for the report of a process that could not load the app of this name."""
        if frame.number("is_misuse"):
            return cls(frame.text("text"), is_misuse=True)
        return cls(f"the import of {name} failed:\n{frame.text('text')}")


@dataclass(frozen=True, slots=True)
class PreloaderEvents:
    """The callbacks of a preloader's client."""

    on_frame: Callable[[Frame], None]
    on_lost: Callable[["PreloaderClient"], None]


class PreloaderClient:
    """The client of one preloader process, which it owns."""

    def __init__(self, config: PoolConfig, events: PreloaderEvents) -> None:
        self._config = config
        self._events = events
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._lifeline = -1
        self._loaded: asyncio.Future[Frame] | None = None

    @property
    def pid(self) -> int:
        """Return the preloader's process id, 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def is_up(self) -> bool:
        """Return whether orders can be sent."""
        return self._channel is not None and self._loaded is not None and self._loaded.done()

    async def start(self) -> Frame:
        """Start the preloader, wait until it has imported the app, and return its report.

        Raises ``PoolStartError``, with the traceback, when the import fails or takes too long.
        """
        loop = asyncio.get_running_loop()
        self._loaded = loop.create_future()
        try:
            self._channel = self._launch()
        except (OSError, ChannelClosedError) as error:
            raise PoolStartError(
                f"{self._config.name}: the process that imports it cannot be started: {error}"
            ) from error
        self._channel.set_blocking(False)
        loop.add_reader(self._channel, self._read)
        try:
            async with asyncio.timeout(self._config.start_timeout):
                return await self._loaded
        except TimeoutError:
            raise PoolStartError(
                f"{self._config.name}: the import took more than {self._config.start_timeout:g} s "
                "(--start-timeout, start_timeout)"
            ) from None
        except ChannelClosedError as error:
            fate = describe_code(await self._reap(_SETTLE_S))
            raise PoolStartError(f"{self._config.name}: the process that imports it ended: {fate}") from error

    def _launch(self) -> Channel:
        """Start the process and send it the runner to load; return this end of its control socket."""
        channel, far = Channel.pair()
        try:
            lifeline_read, self._lifeline = os.pipe()
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "fastq.pool.preloader", str(far.fileno())],
                    pass_fds=[far.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
                channel.send(
                    "load",
                    [lifeline_read],
                    runner=self._config.runner,
                    argument=self._config.argument,
                    start_method=self._config.start_method,
                    soft_limit=given_soft_limit(),
                    has_devices=bool(self._config.devices),
                    sys_path=os.pathsep.join(sys.path),
                )
            finally:
                os.close(lifeline_read)
        except (OSError, ChannelClosedError):
            channel.close()
            raise
        finally:
            far.close()
        return channel

    def order(self, number: int, fds: list[int], config: PoolConfig, device: str = "") -> bool:
        """Order a child of ``config`` with a device; return False if the preloader takes no orders, now or any more."""
        if self._channel is None:
            return False
        try:
            self._channel.send(
                "fork",
                fds,
                child=number,
                runner=config.runner,
                argument=config.argument,
                max_memory=config.max_memory_per_child,
                device=device,
            )
        except ChannelBusyError:
            return False
        except ChannelClosedError:
            self._lost("stopped reading its orders")
            return False
        return True

    def _read(self) -> None:
        try:
            while self._channel is not None and (frame := self._channel.poll()) is not None:
                if self._loaded is None or self._loaded.done():
                    self._events.on_frame(frame)
                elif frame.op == "loaded":
                    self._loaded.set_result(frame)
                else:
                    self._loaded.set_exception(PoolStartError.of_frame(frame, self._config.name))
        except ChannelClosedError as error:
            self._lost(str(error))

    def _lost(self, why: str) -> None:
        self._close_channel()
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(ChannelClosedError(why))
        elif self._loaded is None or self._loaded.exception() is None:  # if the import failed, the preloader has ended
            self._events.on_lost(self)

    def _close_channel(self) -> None:
        if self._channel is not None:
            asyncio.get_running_loop().remove_reader(self._channel)
            self._channel.close()
            self._channel = None

    async def stop(self, within: float) -> None:
        """Let the preloader and its children end; kill it if it does not end ``within`` seconds."""
        if self._channel is not None:
            with contextlib.suppress(ChannelClosedError):
                self._channel.send("exit")
        self._close_channel()
        await self._reap(within)
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    async def _reap(self, within: float) -> int:
        process, loop = self._process, asyncio.get_running_loop()
        until = loop.time() + within
        while process is not None and process.poll() is None:
            if loop.time() > until:
                process.send_signal(signal.SIGKILL)
                kill_group(process.pid)
            await asyncio.sleep(_REAP_S)
        return 0 if process is None else process.returncode
