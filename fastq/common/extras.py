"""Imports of what needs an extra of the distribution."""

import importlib
from collections.abc import Collection
from typing import Any

from fastq.errors import FastqError


def import_extra(module: str, packages: Collection[str], text: str) -> Any:
    """Import a module; ``FastqError`` if one of these packages is missing, whose name replaces ``{}`` in the text."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise FastqError(text.format(error.name)) from None
