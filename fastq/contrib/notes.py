"""The key of the row by which ``once`` records that a function of a task has been committed."""

from collections.abc import Callable

from fastq.running import current_task


def note_key(function: Callable[..., object]) -> str | None:
    """Return the key of a function in the running task, which may call several; None outside a task."""
    try:
        task = current_task()
    except LookupError:
        return None
    return f"{task.queue}:{task.id} {function.__module__}.{function.__qualname__}"
