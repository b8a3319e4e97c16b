"""Imports of modules that an extra of the distribution installs."""

import importlib
from collections.abc import Collection
from typing import Any

from fastq.errors import FastqError


def import_extra(module: str, packages: Collection[str], text: str) -> Any:
    """Import a module; if one of ``packages`` is missing, raise ``FastqError``, with the package's name for ``{}``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise FastqError(text.format(error.name)) from None
