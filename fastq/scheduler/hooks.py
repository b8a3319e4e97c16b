"""The hooks of a scheduler: user code whose errors do not stop the scheduler."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fastq.common.callables import refuse_idle
from fastq.info import TaskInfo
from fastq.task import Task

PreEnqueue: TypeAlias = Callable[[Task, Mapping[str, Any]], object]
"""Called before a tick's task is enqueued, with the options given to ``register``. An exception stops the tick.

If it returns a ``Task``, this task is enqueued instead of the entry's.
"""

PostEnqueue: TypeAlias = Callable[[TaskInfo | None, Exception | None], object]
"""Called with the enqueued task, or with the error that prevented it."""

_log = logging.getLogger("fastq.scheduler")


class EnqueueHooks:
    """The hooks of a scheduler, if any."""

    def __init__(self, pre_enqueue: PreEnqueue | None, post_enqueue: PostEnqueue | None) -> None:
        for name, hook in (("pre_enqueue", pre_enqueue), ("post_enqueue", post_enqueue)):
            if hook is None:
                continue
            if not callable(hook):
                raise TypeError(f"{name} must be callable, not {hook!r}")
            refuse_idle(hook, name)
        self._pre = pre_enqueue
        self._post = post_enqueue

    def before(self, task: Task, options: Mapping[str, Any]) -> Task | Exception:
        """Call ``pre_enqueue``, and return the task to enqueue, or its exception."""
        if self._pre is None:
            return task
        try:
            made = self._pre(task, options)
        except Exception as error:  # noqa: BLE001 - the user's code; its error goes to the other hook
            return error
        if made is None or isinstance(made, Task):
            return made or task
        return TypeError(f"pre_enqueue must return a Task or None, not {made!r}")

    def after(self, info: TaskInfo | None, error: Exception | None) -> None:
        """Call ``post_enqueue``."""
        if self._post is None:
            return
        try:
            self._post(info, error)
        except Exception:  # noqa: BLE001 - the user's code must not stop the other entries
            _log.exception("post_enqueue raised an exception; the scheduler continues")
