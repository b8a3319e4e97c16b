"""An asyncio loop whose time is simulated: it never waits, since the clock jumps to the next timer.

Each handle runs on the machine in whose context it was made. A machine that stands still keeps its handles for later; a
dead one never runs any again, not even their ``finally``, as after SIGKILL.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any, Final

from tests.simulation.page import Page

BEGIN_MONOTONIC_NS: Final = 1_000 * 10**9
SINCE_EPOCH_NS: Final = 1_700_000_000 * 10**9 - BEGIN_MONOTONIC_NS
"""What a wall clock is ahead of the monotonic one."""
MOST_STEPS_AT_ONCE: Final = 200_000


def elapsed_s(at_ns: int) -> float:
    return (at_ns - BEGIN_MONOTONIC_NS) / 1e9


class Timer(list[Any]):
    """A handle: when, a number in the order of making, callback, arguments, context.

    A list is made, and compared with others, without a line of Python. Canceled, it stays where it is, has no callback,
    and is passed over.
    """

    __slots__ = ()

    def when(self) -> float:
        when: float = self[0]
        return when

    def cancelled(self) -> bool:
        return self[2] is None

    def cancel(self) -> None:
        self[2] = self[3] = None


class StuckError(Exception):
    """Nothing will happen any more, or everything happens at one instant."""


class Machine:
    """A simulated machine: whether it runs, and how far its wall clock is ahead."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ahead_ns = 0
        self.is_still = self.is_dead = False
        self.held: list[Timer] = []
        self.context = Context()
        self.context.run(MACHINE.set, self)

    def __repr__(self) -> str:
        return self.name


MACHINE: Final = ContextVar[Machine | None]("machine", default=None)
NO_MACHINE: Final = Machine("none")
"""On which no handle runs, so that the next one sets the clock."""
OUTSIDE: Final = Context()
"""The context of what is on no machine, such as the wires and the story itself."""


class Loop(asyncio.BaseEventLoop):
    """The loop; ``connect`` is what the simulated network does for ``create_connection``."""

    connect: Callable[[Callable[[], Any], str, int], Any]

    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page
        self.now_ns = BEGIN_MONOTONIC_NS
        self._now_s = self.now_ns / 1e9
        self.steps = 0
        self._timers: list[Timer] = []
        self.get_debug = bool  # type: ignore[method-assign]  # says no; each future asks
        self._made = self._steps_before = 0
        self._on: Machine | None = None
        self.set_clock(None)

    def time(self) -> float:
        return self._now_s

    @property
    def elapsed_s(self) -> float:
        return elapsed_s(self.now_ns)

    def wall_ns(self, machine: Machine | None = None) -> int:
        return SINCE_EPOCH_NS + self.now_ns + (machine.ahead_ns if machine else 0)

    def set_clock(self, machine: Machine | None) -> None:
        self._on = machine
        wall_ns = SINCE_EPOCH_NS + self.now_ns
        self._page.set(wall_ns if machine is None else wall_ns + machine.ahead_ns, self.now_ns)

    def resume(self, machine: Machine) -> None:
        """Let a machine go on: what was due meanwhile comes at once."""
        machine.is_still = False
        held, machine.held = machine.held, []
        self._ready.extend(held)  # type: ignore[attr-defined]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        """Schedule; of two timers for one instant, the one that was made first comes first."""
        self._made = made = self._made + 1
        timer = Timer((when, made, callback, args, copy_context() if context is None else context))
        heappush(self._timers, timer)
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        handle = Timer((0.0, 0, callback, args, copy_context() if context is None else context))
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def _run_once(self) -> None:
        """Run round after round until somebody stops the loop: a return after each would be a part of the time."""
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while not self._stopping:  # type: ignore[attr-defined]
            if not ready:
                self._jump()
            now_s = self._now_s
            while timers and timers[0][0] <= now_s:
                ready.append(heappop(timers))
            count = len(ready)
            self.steps += count
            if self.steps - self._steps_before > MOST_STEPS_AT_ONCE:
                raise StuckError(f"{self.steps - self._steps_before} steps at one instant, the next {ready[0]}")
            for _ in range(count):
                handle = ready.popleft()
                _, _, callback, args, context = handle
                if callback is None:
                    continue
                machine = context.get(MACHINE)
                if machine is not None and (machine.is_still or machine.is_dead):
                    machine.held.append(handle)  # of a dead one, too: collected, its coroutines would be closed
                    continue
                if machine is not self._on:
                    self.set_clock(machine)
                try:
                    context.run(callback, *args)
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - as asyncio's handles do
                    self.call_exception_handler({"message": "a callback", "exception": error, "handle": handle})

    def _jump(self) -> None:
        """Go to the instant of the next timer."""
        timers = self._timers
        while timers and timers[0][2] is None:
            heappop(timers)
        if not timers:
            raise StuckError("nothing is scheduled")
        due_s = timers[0][0]
        due_ns = int(due_s * 1e9)
        while due_ns / 1e9 < due_s:
            due_ns += 1  # never before it, however the float was rounded
        if due_ns > self.now_ns:
            self.now_ns, self._now_s, self._steps_before = due_ns, due_ns / 1e9, self.steps
            self._on = NO_MACHINE

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
