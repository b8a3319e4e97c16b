"""The pool: tasks as bytes in, outcomes as events out, handlers in processes that can be killed.

Processes, a folder each. The *main process* (asyncio, no user code) owns the pool: ``pool`` (facade), ``dispatcher``
(which child gets which task), ``child`` (the state of one child), ``child_queue`` (the main process's side of its
rings), ``supervisor`` and ``seats`` (starting and replacing children), ``timekeeper`` (time limits), ``dead_child``
(the tasks of a dead child). The *preloader* imports the app once, forks and reaps. ``fork_server`` manages it, and is
shared by all pools of a server. *Children* run tasks (``run``). ``shared`` is what both sides know.

Memory. Each child has one segment, made by the main process and passed by descriptor: header, slot table, task ring,
result ring. Only that child and the main process map it. All children share one page: the bell. Each word has a single
writer, except those that are changed by atomic swaps: a record's state, a row's word, the sleep flag and the bell.
``layout`` lists all of them.

    record   WAITING ─child─> RUNNING            row   IDLE ─child─> RUNNING ─child─> IDLE
                └─main─> WITHDRAWN                             └─main─> TIMED_OUT | … ─child─> IDLE
    child    STARTING -> READY -> LEAVING (no more work) -> EXITING (told to) -> DEAD;  any -> KILLED -> DEAD

A submission waits in the dispatcher, then in a ring, runs, and ends with one event. It starts when its record is
claimed. It counts as running until its result is read or its child is dead; only then is the slot free.

Wake-ups. A side that is about to sleep sets its flag, checks the ring once more, and sleeps. The other side fills the
ring, issues a fence, and checks the flag. A child rings when only a third of its backlog is left, when it runs dry, and
for a result that its handler writes. For coroutines that end in one turn of its event loop it rings once. While a child
has work left, its results can wait: the main process reads them at its tick, within 20 ms, and so handles many tasks at
once.

Deaths:
- A child: the kernel notifies the main process (pidfd), and the preloader reports the status and the peak RSS. Results
  that it had sent count, and tasks that it had not begun move on. A task that was running is CRASHED, or TIMEOUT or
  CANCELED if it had been asked to end. The child's process group is killed before the child is reaped, so grandchildren
  die with it. Its seat is filled again.
- A child that is killed because of a task: that task is charged, and the child's other coroutines are RERUN. If the
  child had grown above the memory limit and no task can be blamed, everything that ran in it is RERUN.
- The preloader: the kernel kills every child's group (its lifeline, a pipe, is cut: ``lifeline``), even if a thread
  holds the GIL. Running tasks are RERUN, waiting ones keep waiting, and another preloader starts. A preloader that is
  replaced by a reload lives until its last child has a successor from the new one.
- The main process: the kernel kills the preloader in the same way, and with it the children. A child that notices this
  first kills its own group.
- A child that cannot be killed (stuck in the kernel) keeps its seat: there are never more handlers than seats.
- A process that leaves its process group (``setsid`` in a grandchild) is out of reach.
"""
