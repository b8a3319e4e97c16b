"""Decodes protobuf without a schema: the numbers of the fields, and their values as far as the wire types show them."""

from collections.abc import Iterator
from typing import Final

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_LINES: Final = 500
MOST_DEPTH: Final = 12


def protobuf_lines(data: bytes) -> list[str] | None:
    """Return a line for each field, indented in inner messages; None if the bytes are not a protobuf message."""
    try:
        fields = list(_fields(data))
    except (ValueError, IndexError):
        return None
    return list(_lines(fields, 0))[:MOST_LINES] if fields else None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes, int]]:
    """Yield number, value and wire type of each field; ``ValueError`` or ``IndexError`` for other bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise ValueError(number)
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, value, kind
            continue
        size = 8 if kind == FIXED64 else 4
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind not in (FIXED64, FIXED32):
            raise ValueError(kind)
        if at + size > len(data):
            raise ValueError(size)
        part = data[at : at + size]
        yield number, part if kind == BYTES else int.from_bytes(part, "little"), kind
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError(shift)


def _lines(fields: list[tuple[int, int | bytes, int]], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for number, value, kind in fields:
        if isinstance(value, int):
            digits = {FIXED64: 16, FIXED32: 8}.get(kind, 0)
            yield f"{indent}{number}: {f'0x{value:0{digits}x}' if digits else value}"
            continue
        text = _text(value)
        if text is not None:
            yield f"{indent}{number}: {text}"
            continue
        try:
            within = list(_fields(value)) if depth < MOST_DEPTH else []
        except (ValueError, IndexError):
            within = []
        if within:
            yield f"{indent}{number} {{"
            yield from _lines(within, depth + 1)
            yield f"{indent}}}"
        else:
            yield f"{indent}{number}: <{value[:64].hex(' ')}{' …' if len(value) > 64 else ''}>"


def _text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if not all(each.isprintable() or each in "\n\t" for each in text):
        return None
    return f'"{text}"'.replace("\n", "\\n").replace("\t", "\\t")
