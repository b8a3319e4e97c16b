"""Loading of a runner from ``module:attr`` and an argument."""

import importlib
from typing import cast

from fastq.log.traces import own_trace
from fastq.pool.shared.runner import Runner, RunnerFactory, RunnerMisuseError


class RunnerLoadError(Exception):
    """Raised when the runner, or the app that it imports, cannot be loaded.

    The text is the traceback; if ``is_misuse``, it names the object that does not exist.
    """

    def __init__(self, text: str, *, is_misuse: bool = False) -> None:
        super().__init__(text)
        self.is_misuse = is_misuse


def load_runner(spec: str, argument: str) -> Runner:
    """Import the factory that ``spec`` names and call it.

    Raises ``RunnerLoadError`` for every error inside, including ``SystemExit`` at import.
    """
    module_name, _, attribute = spec.partition(":")
    try:
        factory = cast(RunnerFactory, getattr(importlib.import_module(module_name), attribute))
        return factory(argument)
    except RunnerMisuseError as error:
        raise RunnerLoadError(str(error), is_misuse=True) from error
    except BaseException as error:  # an app may raise anything at import, and the user needs to see it
        raise RunnerLoadError(own_trace(error)) from error
