"""Payloads and results for people: JSON with one member a line and its digits unchanged, text, or hexadecimal."""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from markupsafe import Markup, escape

from fastq.web.protobuf import protobuf_lines

MOST_BYTES: Final = 64 * 1024
MOST_HEX_BYTES: Final = 2 * 1024
PREVIEW: Final = 140
CHARACTER: Final = 4
"""The most bytes that a character has in UTF-8."""
ROW: Final = 16
MOST_INDENTED: Final = 20
FORMS: Final = ("raw", "hex", "base64", "protobuf")
"""The forms that a user can choose for bytes, in addition to the default form."""
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes in the form that is shown: ``kind`` is "JSON", "text", "bytes", one of ``FORMS``, or "empty". ``size`` is
    the number of all bytes. ``others`` are the other forms that are possible for these bytes.
    """

    kind: str
    html: Markup
    size: int
    is_cut: bool
    others: tuple[str, ...] = ()


def shown(data: bytes, form: str = "", size: int = 0) -> Shown:
    """Return the beginning of bytes in a given form, or in the default form if the given form is not possible.

    ``size`` is the number of all bytes if the rest was not read.
    """
    if not data:
        return Shown("empty", Markup(""), 0, False)
    if size > len(data):
        data = _beginning(data, len(data) - CHARACTER)
    found = _formed(data, form) or _suited(data)
    others = [each for each in FORMS if each != found.kind and _formed(data, each) is not None]
    size = max(size, len(data))
    return replace(found, others=tuple(others), size=size, is_cut=found.is_cut or size > len(data))


def _formed(data: bytes, form: str) -> Shown | None:
    """Return bytes in one of ``FORMS``, None if that form is not possible."""
    match form:
        case "raw" if (text := _text(_beginning(data, MOST_BYTES))) is not None:
            return Shown(form, escape(_visible(text)), len(data), len(data) > MOST_BYTES)
        case "hex":
            rows = "\n".join(_hex_rows(data[:MOST_HEX_BYTES]))
            return Shown(form, escape(rows), len(data), len(data) > MOST_HEX_BYTES)
        case "base64":
            text = base64.b64encode(data[: MOST_BYTES // 4 * 3]).decode()
            return Shown(form, escape(text), len(data), len(data) > MOST_BYTES // 4 * 3)
        case "protobuf" if len(data) <= MOST_BYTES and (lines := protobuf_lines(data)):
            return Shown(form, escape("\n".join(lines)), len(data), False)
    return None


def _suited(data: bytes) -> Shown:
    text = _text(data)
    if text is None:
        return Shown(
            "bytes", escape("\n".join(_hex_rows(data[:MOST_HEX_BYTES]))), len(data), len(data) > MOST_HEX_BYTES
        )
    if len(data) <= MOST_BYTES and _is_json(text):
        html = Markup("".join(_laid_out(text)))  # its parts are escaped
        return Shown("JSON", html, len(data), False)
    cut = _beginning(data, MOST_BYTES).decode()
    return Shown("text", escape(_visible(cut)), len(data), len(data) > MOST_BYTES)


def preview(data: bytes | None, size: int = 0) -> str:
    """Return the beginning of bytes on one line; ``size`` is the number of all bytes if the rest was not read."""
    if not data:
        return ""
    size = max(size, len(data))
    text = _text(_beginning(data, 4 * PREVIEW))
    if text is None:
        return f"{size:,} bytes: {data[:ROW].hex(' ')}{' …' if size > ROW else ''}"
    line = _visible(" ".join(text.split()))
    return f"{line[:PREVIEW]}…" if len(line) > PREVIEW or size > 4 * PREVIEW else line


def _beginning(data: bytes, most: int) -> bytes:
    """Cut bytes; text is cut between two characters."""
    for end in range(most, max(0, most - 4), -1):
        if end >= len(data) or data[end] & 0xC0 != 0x80:
            return data[:end]
    return data[:most]


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def _visible(text: str) -> str:
    """Replace invisible characters, and characters that reverse the text around them, with their code points."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else f"\\u{ord(each):04x}" for each in text.replace("\r\n", "\n")
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return text.lstrip()[:1] in ("{", "[", '"')


def _laid_out(text: str) -> Iterator[str]:
    """Yield a JSON text as HTML: its tokens unchanged and colored, and each member on a line of its own."""
    tokens = _TOKEN.findall(text)
    depth = 0
    for at, token in enumerate(tokens):
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        if token in "{[":
            depth += 1
            yield token if after in "}]" else f"{token}\n{_indent(depth)}"
        elif token in "}]":
            depth -= 1
            is_empty = tokens[at - 1] in "{["
            yield token if is_empty else f"\n{_indent(depth)}{token}"
        elif token in ",:":
            yield f",\n{_indent(depth)}" if token == "," else ": "
        elif token.startswith('"'):
            yield f'<span class="{"jk" if after == ":" else "js"}">{escape(_visible(token))}</span>'
        else:  # a number or a word of JSON: nothing to escape
            yield f'<span class="{"jn" if token[0] in "-0123456789" else "jl"}">{token}</span>'


def _indent(depth: int) -> str:
    """Return the space before a line. It is limited: 64 kB of deep nesting would otherwise make a page of 60 MB."""
    return "  " * min(depth, MOST_INDENTED)


def _hex_rows(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), ROW):
        row = data[start : start + ROW]
        text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        yield f"{start:06x}  {row[:8].hex(' '):23}  {row[8:].hex(' '):23}  {text}"
