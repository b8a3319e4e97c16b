"""An asyncio loop whose time is simulated: it never waits, since the clock jumps to the next timer.

Each handle runs on the machine in whose context it was made. A machine that stands still keeps its handles for later; a
dead one never runs any again, not even their ``finally``, as after SIGKILL.
"""

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final

from tests.simulation.page import Page

BEGIN_WALL_NS: Final = 1_700_000_000 * 10**9
BEGIN_MONOTONIC_NS: Final = 1_000 * 10**9
MOST_STEPS_AT_ONCE: Final = 200_000


def elapsed_s(at_ns: int) -> float:
    return (at_ns - BEGIN_MONOTONIC_NS) / 1e9


class Timer(asyncio.TimerHandle):
    """A handle, made with nothing that only debugging needs; canceled, it stays where it is, and is passed over."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: Any, loop: Any, context: Context | None
    ) -> None:
        self._when, self._callback, self._args, self._loop = when, callback, args, loop
        self._context = copy_context() if context is None else context
        self._cancelled, self._scheduled = False, True
        self._source_traceback = self._repr = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class StuckError(Exception):
    """Nothing will happen any more, or everything happens at one instant."""


class Machine:
    """A simulated machine: whether it runs, and how far its wall clock is ahead."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ahead_ns = 0
        self.is_still = self.is_dead = False
        self.held: list[events.Handle] = []
        self.context = Context()
        self.context.run(MACHINE.set, self)

    def __repr__(self) -> str:
        return self.name


MACHINE: Final = ContextVar[Machine | None]("machine", default=None)
OUTSIDE: Final = Context()
"""The context of what is on no machine, such as the wires and the story itself."""


class Loop(asyncio.BaseEventLoop):
    """The loop; ``connect`` is what the simulated network does for ``create_connection``."""

    connect: Callable[[Callable[[], Any], str, int], Any]

    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page
        self.now_ns = BEGIN_MONOTONIC_NS
        self.steps = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._made = self._at_once = 0
        self._on: Machine | None = None
        self.set_clock(None)

    def time(self) -> float:
        return self.now_ns / 1e9

    @property
    def elapsed_s(self) -> float:
        return elapsed_s(self.now_ns)

    def wall_ns(self, machine: Machine | None = None) -> int:
        return BEGIN_WALL_NS + self.now_ns - BEGIN_MONOTONIC_NS + (machine.ahead_ns if machine else 0)

    def set_clock(self, machine: Machine | None) -> None:
        self._on = machine
        self._page.set(self.wall_ns(machine), self.now_ns)

    def resume(self, machine: Machine) -> None:
        """Let a machine go on: what was due meanwhile comes at once."""
        machine.is_still = False
        held, machine.held = machine.held, []
        self._ready.extend(held)  # type: ignore[attr-defined]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule; of two timers for one instant, the one that was made first comes first."""
        timer = Timer(when, callback, args, self, context)
        self._made += 1
        heapq.heappush(self._timers, (when, self._made, timer))
        return timer

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Timer:
        handle = Timer(0.0, callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        if not ready:
            self._jump()
        now_s = self.time()
        while timers and timers[0][0] <= now_s:
            ready.append(heapq.heappop(timers)[2])
        count = len(ready)
        self.steps += count
        self._at_once += count
        for _ in range(count):
            handle = ready.popleft()
            if not handle._cancelled:
                machine = handle._context.get(MACHINE)
                if machine is not None and (machine.is_still or machine.is_dead):
                    machine.held.append(handle)  # of a dead one, too: collected, its coroutines would be closed
                    continue
                if machine is not self._on:
                    self.set_clock(machine)
                handle._run()
        if self._at_once > MOST_STEPS_AT_ONCE:
            raise StuckError(f"{self._at_once} steps at one instant, the last {handle}")

    def _jump(self) -> None:
        """Go to the instant of the next timer."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise StuckError("nothing is scheduled")
        due_s = self._timers[0][0]
        due_ns = int(due_s * 1e9)
        while due_ns / 1e9 < due_s:
            due_ns += 1  # never before it, however the float was rounded
        if due_ns > self.now_ns:
            self.now_ns, self._at_once = due_ns, 0
            self.set_clock(self._on)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str = "", port: int = 0, **options: Any
    ) -> Any:
        return await self.connect(protocol_factory, host, port)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """Call at once, in this thread, and answer a moment later."""
        answer = self.create_future()

        def settle(set_result: Callable[[Any], None], result: Any) -> None:
            if not answer.done():
                set_result(result)

        try:
            self.call_later(0.001, settle, answer.set_result, func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            self.call_later(0.001, settle, answer.set_exception, error)
        return answer

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("there is no selector")

    def _write_to_self(self) -> None:
        raise AssertionError("another thread called in")
