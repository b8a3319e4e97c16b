"""Bytes in readable form: indented JSON, other text unchanged, or else a hex dump; control characters are escaped."""

import json
import re
from collections.abc import Iterator
from typing import Final

from fastq.text.human import clean, size

MOST_SHOWN: Final = 65_536
"""The most bytes of a dump, and the most characters of other lines."""
MOST_PARSED: Final = 1_000_000
MOST_INDENTED: Final = 20
ROW: Final = 16

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def shown_lines(data: bytes) -> list[str]:
    """Format bytes as lines; if there are too many, the first ones, and a note of what is missing."""
    text = _text_of(data)
    if text is None:
        lines, is_cut = list(_dump(data[:MOST_SHOWN])), False
        is_partial = len(data) > MOST_SHOWN
    else:
        is_partial = len(data) > MOST_PARSED
        is_json = not is_partial and _is_json(text)
        lines, is_cut = _cut(map(clean, _set(text) if is_json else map(str.expandtabs, text.splitlines())))
    if is_cut:
        lines.append(f"… the first {MOST_SHOWN:,} characters as shown here, of {size(len(data))} in all")
    elif is_partial:
        lines.append(f"… the first {size(MOST_SHOWN)} of {size(len(data))}")
    return lines


def _text_of(data: bytes) -> str | None:
    """Decode bytes that are text; None for others, and for text with a NUL."""
    some = data if len(data) <= MOST_PARSED else data[:MOST_SHOWN]
    try:
        text = some.decode()
    except UnicodeDecodeError as error:
        if len(some) == len(data) or error.start < len(some) - 3:
            return None
        text = some[: error.start].decode()  # cut in the middle of a character
    return None if "\0" in text else text


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _set(text: str) -> Iterator[str]:
    """Indent valid JSON without changing its tokens: numbers keep their digits, keys their order."""
    line, depth, before = "", 0, ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in ("]", "}"):
            depth -= 1
        if before == "," or (before in ("[", "{")) != (token in ("]", "}")):
            if before:
                yield line
            line = _indent(depth)
        line += ": " if token == ":" else token
        depth += token in ("[", "{")
        before = token
    yield line


def _indent(depth: int) -> str:
    return "  " * min(depth, MOST_INDENTED)


def _cut(lines: Iterator[str]) -> tuple[list[str], bool]:
    """Return the lines up to ``MOST_SHOWN`` characters, and whether there are more."""
    kept: list[str] = []
    left = MOST_SHOWN
    for line in lines:
        if len(line) > left or not left:
            return [*kept, line[:left]] if left else kept, True
        kept.append(line)
        left -= len(line)
    return kept, False


def _dump(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), ROW):
        row = data[at : at + ROW]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{at:08x}  {row.hex(' '):<{3 * ROW - 1}}  {text}"
