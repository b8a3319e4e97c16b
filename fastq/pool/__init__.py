"""The pool: tasks as bytes in, outcomes as events out, handlers in processes that can be killed.

Actors. The *main process* (asyncio, no user code) owns the pool: ``pool`` (facade), ``_dispatcher`` (who gets what),
``child`` (what is known of one), ``_child_queue`` (its rings, near side), ``supervisor`` and ``seats`` (who lives),
``timekeeper`` (who must end), ``dead_child`` (what the dead leave behind). The *preloader* imports the app once, forks,
reaps; ``fork_server`` is shared by all pools of a server that have their children from it. *Children* run tasks
(``child_main``).

Memory. One segment a child, made by the main process and passed by descriptor: header, slot table, task ring, result
ring; nobody but that child and the main process maps it. One page for all: the bell. Every word has one writer, but
for those decided by atomic swaps: a record's state, a row's word, the sleep flag and the bell. ``layout`` has it all.

    record   WAITING ─child─> RUNNING            row   IDLE ─child─> RUNNING ─child─> IDLE
                └─main─> WITHDRAWN                             └─main─> TIMED_OUT | … ─child─> IDLE
    child    STARTING -> READY -> LEAVING (no more work) -> EXITING (told to) -> DEAD;  any -> KILLED -> DEAD

A submission waits in the dispatcher, then in a ring, runs, and ends with one event. It starts when its record is
claimed, and counts as running until its result is read or its child is dead; only then is the slot free.

Wake-ups. A side that sleeps sets its flag, looks at the ring again, sleeps; the other fills the ring, fences, looks at
the flag. A child rings when a third is left of what it was given, when it runs dry, and for a result that its handler
writes; for coroutines that end in one turn of its event loop it rings once. While it has more work before it nobody is
in a hurry for its results: the main process reads them at its tick, every 20 ms at the latest, and so all that it does
for a task it does for many at once.

When it dies:
- A child: the kernel tells the main process (pidfd), the preloader says how (status, peak RSS). What it had answered
  counts, what it had not begun moves on, what ran in it is CRASHED (TIMEOUT, CANCELED if it had been told to end). Its
  process group is killed before it is reaped, so grandchildren go with it. Its seat is filled again.
- A child killed for a task: that task is charged, its other coroutines are RERUN. One that has grown above the memory
  limit, nobody knows by whom: all that ran in it is RERUN.
- The preloader: the kernel kills every child's group (its lifeline, a pipe, is cut: ``lifeline``), whatever holds the
  GIL. What ran is RERUN, what waited waits on; another preloader starts. Replaced by choice (a reload), it lives until
  its last child has been succeeded by one of the new preloader's.
- The main process: the kernel kills the preloader in the same way, and so the children.
- A child that cannot be killed (stuck in the kernel) keeps its seat: never more handlers than seats.
- What leaves its process group (``setsid`` in a grandchild) is out of reach.
"""

from fastq.pool._child_queue import Event, Submission
from fastq.pool.config import PoolConfig
from fastq.pool.event_kind import EventKind
from fastq.pool.pool import ProcessPool
from fastq.pool.preloader_client import PoolStartError
from fastq.pool.protocol import CancelOutcome, Pool, PoolCallbacks, Running
from fastq.pool.runner import Answer, Runner, RunnerFactory, TaskContext

__all__ = [
    "Answer",
    "CancelOutcome",
    "Event",
    "EventKind",
    "Pool",
    "PoolCallbacks",
    "PoolConfig",
    "PoolStartError",
    "ProcessPool",
    "Runner",
    "RunnerFactory",
    "Running",
    "Submission",
    "TaskContext",
]
