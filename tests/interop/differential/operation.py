"""What is done to both sides, as data, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BEGIN", "CANCEL", "END", "ENQUEUE", "Operation", "Outcome"]

ENQUEUE, BEGIN, END, CANCEL = "enqueue", "begin", "end", "cancel"
"""The ``method`` of operations that are no method of the inspector."""


@dataclass(frozen=True)
class Operation:
    """Be one call: ``name`` counts in the table, ``method`` is what to call with ``args`` and ``options``."""

    name: str
    method: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.options.items())]
        return f"{self.name}: {self.method}({', '.join(given)})"


@dataclass(frozen=True)
class Outcome:
    """Be what a call returned, as text, or the name of fastq's error class for what it raised."""

    value: str = ""
    error: str = ""

    def __str__(self) -> str:
        return self.error or self.value
