"""The notes of ``once``: the key under which a database notes that a function of a task has been committed."""

from collections.abc import Callable

from fastq.running import current_task


def note_key(function: Callable[..., object]) -> str | None:
    """Return the key of a function in the running task; None outside a task. A task may call several such functions."""
    try:
        task = current_task()
    except LookupError:
        return None
    return f"{task.queue}:{task.id} {function.__module__}.{function.__qualname__}"
