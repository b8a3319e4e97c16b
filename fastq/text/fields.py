"""Values of records for people, by their kinds."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastq.inspector.fields import Field, Kind
from fastq.text.human import clean, number, share, size, span

__all__ = ["NUMBERS", "text_of"]

NUMBERS: Final = (Kind.COUNT, Kind.SPAN, Kind.BYTES, Kind.SHARE)
"""The kinds that stand on the right of a column."""
_WRITERS: Final[Mapping[Kind, Callable[[Any], str]]] = {
    Kind.COUNT: number,
    Kind.FLAG: lambda is_so: "yes" if is_so else "no",
    Kind.BYTES: size,
    Kind.SPAN: span,
    Kind.SHARE: lambda pair: share(*pair),
}


def text_of(field: Field, record: Any) -> str:
    """Write a value as people see it; no value is "-"."""
    value = field.read(record)
    if isinstance(value, str):
        return clean(value)
    return "-" if value is None else _WRITERS[field.kind](value)
