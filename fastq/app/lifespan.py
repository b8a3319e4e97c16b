"""``Lifespan``: the set-up of an app in each child before its first task, and the clean-up at the end."""

import inspect
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from typing import Any


class Lifespan:
    """A generator function that yields once; ``start`` runs it up to the ``yield``, ``stop`` to its end. Both are async
    if the generator function is async.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._env: Any = None
        self._has_begun = False
        self.start: Callable[[], object]
        self.stop: Callable[[], object]
        # Each start creates a new generator, so that an app may start more than once in the same process.
        managers: list[Any] = []
        if inspect.isasyncgenfunction(function):

            async def start() -> None:
                managers.append(asynccontextmanager(function)())
                self._begin(await managers[-1].__aenter__())

            async def stop() -> None:
                await managers.pop().__aexit__(None, None, None)

            self.start, self.stop = start, stop
        elif inspect.isgeneratorfunction(function):

            def start_plain() -> None:
                managers.append(contextmanager(function)())
                self._begin(managers[-1].__enter__())

            self.start, self.stop = start_plain, lambda: managers.pop().__exit__(None, None, None)
        else:
            raise TypeError(f"@app.lifespan is for a generator function that yields once, not for {function!r}")

        for hook in (self.start, self.stop):
            hook.__qualname__ = function.__qualname__

    def _begin(self, env: Any) -> None:
        self._env, self._has_begun = env, True

    def env(self) -> Any:
        """Return the yielded value."""
        if not self._has_begun:
            raise RuntimeError("the app's lifespan has not begun: call the function itself, with a context of your own")
        return self._env
