"""Run plain tasks in threads of a child, side by side; the event loop's thread begins them and tells them to end.

A thread is started when no other is free, and kept until the child ends: so what an app keeps by thread, such as a
connection to a database, serves many tasks, and is freed in its own thread in the end.
"""

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from fastq.pool._work import Attempt, Work
from fastq.pool.processes import leave

__all__ = ["Threads"]


class Threads:
    """The threads of a child and the tasks in them; ``on_end`` is called in a thread, where tasks have ended."""

    def __init__(self, work: Work, on_end: Callable[[], object]) -> None:
        self._work = work
        self._on_end = on_end
        self._inbox: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._ended: deque[int] = deque()  # rows
        self._is_told = False  # of what has ended
        self.running: dict[int, Attempt] = {}
        """By row; those of tasks that have ended are in it until ``take_rows``."""
        work.on_thread(self._start)

    def _start(self, task: Attempt) -> None:
        self.running[task.row] = task
        self._inbox.put(task)
        if len(self.running) > len(self._threads):
            self._add()

    def _add(self) -> None:
        thread = Thread(target=self._serve, name=f"fastq-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system gives no more: the task waits for another one's thread
            if not self._threads:
                leave(error)
            return
        self._threads.append(thread)

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

    def tell(self) -> None:
        """Raise in the threads of tasks whose end was asked for since."""
        for task in list(self.running.values()):
            if self._work.was_told(task):
                self._work.raise_in_thread(task)

    def close(self) -> None:
        """End the threads; no task is in them."""
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            thread.join()
