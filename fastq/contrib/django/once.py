"""``once``: a task whose effects in the database happen once, however often it runs."""

import functools
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, TypeVar

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, transaction

from fastq.common.callables import refuse_generator
from fastq.contrib.notes import note_key

P = ParamSpec("P")
R = TypeVar("R")


def once(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate the function of a task: its effects in the default database happen once, however often it runs.

    The function runs in a transaction that also inserts a row with the id of the task, the name of the function and the
    result, which must be JSON. A later run of the same task finds the row, and returns that result without a call of
    the function. A failed run is rolled back. Outside a task, the function just runs in a transaction. A coroutine
    function raises ``TypeError``, since Django has no async transactions.
    """
    if iscoroutinefunction(function):
        raise TypeError(f"@once needs a plain function, since Django has no async transactions: {function!r}")

    refuse_generator(function, "the function of @once")

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with transaction.atomic():
            key = note_key(function)
            if key is None:
                return function(*args, **kwargs)
            notes: Any = apps.get_model("fastq", "CommittedTask")._default_manager.using(DEFAULT_DB_ALIAS)
            # Another process that runs the same task waits here until this one has been committed or rolled back.
            committed, is_new = notes.get_or_create(key=key)
            if is_new:
                committed.result = function(*args, **kwargs)
                committed.save(update_fields=["result"])
            result: R = committed.result
            return result

    return run
