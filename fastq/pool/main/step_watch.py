"""Reports coroutines that block the event loop of their child, as `time.sleep` in an `async def` does.

Wakes at the pool's tick, looks four times a second, and only at children with several tasks. A loop that waits for its
coroutines is in none of them. So if the loop's thread used no CPU between two looks, and was in the same task's
coroutine at both, that coroutine waits without giving the loop back.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fastq.pool.main.child import Child
from fastq.pool.shared.processes import thread_time

_EVERY_S = 0.25
_PATIENCE_S = 0.5
_MOST_TYPES = 100
"""How many types are reported, each once."""


class _Seen(NamedTuple):
    """The task whose coroutine a loop was in, the CPU time of the loop's thread, and since when both are unchanged."""

    seq: int
    cpu: tuple[int, int]
    since_s: float


class StepWatch:
    """A watch for coroutines that block their event loop."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self._seen: dict[Child, _Seen] = {}
        self._told: set[str] = set()
        self._due_s = -math.inf

    def check(self, children: Sequence[Child], now_s: float) -> None:
        """Report each type of which a coroutine stands still while other tasks of its child wait."""
        if now_s < self._due_s or len(self._told) >= _MOST_TYPES:
            return
        self._due_s = now_s + _EVERY_S
        before, self._seen = self._seen, {}
        for child in children:
            if child.queue.pending > 1 and (seq := child.queue.in_step):
                self._look(child, seq, before.get(child), now_s)

    def _look(self, child: Child, seq: int, before: _Seen | None, now_s: float) -> None:
        cpu = thread_time(child.pid, child.pid)
        if cpu is None:
            return
        same = before is not None and (before.seq, before.cpu) == (seq, cpu)
        self._seen[child] = seen = before if before is not None and same else _Seen(seq, cpu, now_s)
        blocking = child.queue.find(seq)
        if now_s - seen.since_s < _PATIENCE_S or blocking is None or blocking.type in self._told:
            return
        self._told.add(blocking.type)
        self._on_notice(
            f"a coroutine of type {blocking.type!r} has blocked the event loop of its worker process for "
            f"{now_s - seen.since_s:.1f} s, and the other coroutines there wait; await asyncio.sleep and "
            "async libraries, call others by asyncio.to_thread, or make the handler a plain def"
        )
