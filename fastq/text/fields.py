"""Values of records as text for people, by the ``Kind`` of the field."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from fastq.common.clock import EPOCH
from fastq.inspector.fields import Field, Kind
from fastq.text.human import clean, number, share, size, span, stamp, when
from fastq.wire.progress import TaskProgress

NUMBERS: Final = (Kind.COUNT, Kind.SPAN, Kind.BYTES, Kind.SHARE)
"""The kinds that are aligned to the right of a column."""
_WRITERS: Final[Mapping[Kind, Callable[[Any], str]]] = {
    Kind.COUNT: number,
    Kind.NUMBER: number,
    Kind.FLAG: lambda is_so: "yes" if is_so else "no",
    Kind.BYTES: size,
    Kind.SPAN: span,
    Kind.SHARE: lambda pair: share(*pair),
}


def text_of(field: Field, record: Any, now: datetime = EPOCH) -> str:
    """Write a value as text for people; None is "-", and times are relative to ``now``."""
    value = field.read(record)
    if value is None:
        return "-"
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, TaskProgress):
        current, total, note, value = value
        told = clean(f"{current:g}{'' if total is None else f'/{total:g}'} {note}".strip())
        return f"{told} ({when(value, now)})"
    if isinstance(value, datetime):
        return f"{stamp(value)} ({when(value, now)})"
    return _WRITERS[field.kind](value)
