"""Run plain tasks in threads of a child, side by side; the event loop's thread begins them and tells them to end.

The next thread is started when the last free one gets a task; a task begins only if there is a thread for it. Threads
live until the child ends. So what an app keeps per thread, such as a database connection, serves many tasks, and is
freed in that thread at the end.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from fastq.pool.child.work import Attempt, Work

_log = logging.getLogger("fastq.worker")


class Threads:
    """The threads of a child and the tasks in them; ``on_end`` is called in a thread whose task has ended."""

    def __init__(self, work: Work, on_end: Callable[[], object]) -> None:
        self._work = work
        self._on_end = on_end
        self._inbox: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._ended: deque[int] = deque()  # rows
        self._is_told = False  # ``on_end`` was called since the last ``take_rows``
        self.running: dict[int, Attempt] = {}
        """The tasks by row; a task that has ended stays here until ``take_rows``."""
        self._untold: list[Attempt] = []  # tasks told to end, in whose threads nothing could be raised yet
        self._is_short = False  # the system has refused a thread
        self._unused_rows = list(work.thread_rows)  # the rows that have no thread yet
        work.thread_rows.clear()
        work.on_thread(self._start)

    def prepare(self) -> None:
        """Start one more thread if none is free; raise ``RuntimeError`` if the system refuses one."""
        if self._unused_rows and not self._work.thread_rows:
            thread = Thread(target=self._serve, name=f"fastq-{len(self._threads)}", daemon=True)
            thread.start()
            self._threads.append(thread)
            self._work.thread_rows.append(self._unused_rows.pop())

    def _start(self, task: Attempt) -> None:
        try:
            # Start the next thread before the task begins: a new thread must wait for the GIL, which this task might
            # not release.
            self.prepare()
        except (RuntimeError, MemoryError) as error:
            if not self._is_short:
                self._is_short = True
                most = len(self._threads) + len(self._unused_rows)
                text = "worker process %d has %d of %d threads, for which tasks wait: %s"
                _log.warning(text, os.getpid(), len(self._threads), most, error)
        self.running[task.row] = task
        self._inbox.put(task)

    def _serve(self) -> None:
        while (task := self._inbox.get()) is not None:
            self._work.run_in_thread(task)
            self._ended.append(task.row)
            if not self._is_told:
                self._is_told = True
                self._on_end()

    def take_rows(self) -> None:
        """Free the rows of tasks that have ended."""
        self._is_told = False
        while self._ended:
            row = self._ended.popleft()
            del self.running[row]
            self._work.thread_rows.append(row)

    def tell(self) -> bool:
        """Raise in the threads of tasks that were told to end; return whether to call this again soon."""
        running = list(self.running.values())
        untold = self._untold + [task for task in running if self._work.was_told(task)]
        self._untold = [task for task in untold if task in running and not self._work.raise_in_thread(task)]
        return bool(self._untold)

    def close(self) -> None:
        """End the threads, when no task is in them."""
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            thread.join()
