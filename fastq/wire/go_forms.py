"""The forms in which Go writes the values of a task's options into scheduler entries: ``"low"``, a time, a header.

asynq's reader ends a value at its first ``)``, and takes every zone except UTC as if its offset were 0. So ``)`` is
written as an escape, and times are written in UTC.
"""

import json
import re
from datetime import UTC, datetime

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SHORT = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
    ")": "\\x29",
}
_JSON_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&)\u2028\u2029"})


def text_form(text: str) -> str:
    """Return a text in the form of Go's ``%q``."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def time_form(moment: datetime) -> str:
    """Return a time in the form of Go's ``time.UnixDate``."""
    zone = moment.tzname() or ""
    if moment.utcoffset() or not re.fullmatch("[A-Z]{3}", zone):
        moment, zone = moment.astimezone(UTC), "UTC"
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day} {month} {moment.day:2} {moment:%H:%M:%S} {zone} {moment.year:04}"


def header_form(key: str, value: str) -> str:
    """Return a header with key and value in the form of Go's ``encoding/json``."""
    return json.dumps((key, value), ensure_ascii=False, separators=(",", ":")).translate(_JSON_ESCAPES)
