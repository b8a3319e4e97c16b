"""Redaction: payloads and results are hidden, or the values of named JSON members are replaced."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from fastq.info import TaskHead, TaskInfo

T = TypeVar("T", bound=TaskInfo)

HIDDEN: Final = b"[hidden]"
REDACTED: Final = '"[redacted]"'
MOST_BYTES: Final = 1_000_000
_STRING: Final = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")(?:(\s*:)\s*)?')
"""A string of a JSON text; it is the name of a member if it has the second group."""
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Redaction:
    """Which parts of payloads, results and headers are replaced before any page or API gets them. ``keys`` are names of
    members of JSON objects, in lower case. Data that is not JSON, or too large to parse, cannot be redacted, so if
    there are ``keys``, such data is hidden.
    """

    hides: bool = False
    keys: frozenset[str] = frozenset()

    @property
    def is_needed(self) -> bool:
        """Whether anything is replaced."""
        return self.hides or bool(self.keys)

    @classmethod
    def of(cls, hides: bool, keys: Iterable[str]) -> "Redaction":
        """Check the keys; ``ValueError`` for an empty key."""
        names = frozenset(key.casefold() for key in keys)
        if "" in names:
            raise ValueError("redact: '' is not the name of a member")
        return cls(hides, names)

    def task(self, info: T) -> T:
        """Return a task with the parts replaced that have to be hidden."""
        if not self.is_needed:
            return info
        of_payload, of_result = (info.payload_size, info.result_size) if isinstance(info, TaskHead) else (0, 0)
        payload = self.data(info.payload, of_payload)
        result = None if info.result is None else self.data(info.result, of_result)
        sizes: dict[str, Any] = {}
        if isinstance(info, TaskHead):
            sizes = {"payload_size": len(payload), "result_size": len(result or b"")}
        return replace(info, payload=payload, result=result, headers=self._headers(info.headers), **sizes)

    def data(self, data: bytes, size: int = 0) -> bytes:
        """Return a payload or a result, redacted; ``size`` is its whole size if it was cut."""
        if not self.is_needed or not (data or size):
            return data
        if self.hides or max(len(data), size) > MOST_BYTES or size > len(data):
            return HIDDEN
        try:
            text = data.decode()
            json.loads(text)
        except (ValueError, RecursionError):
            return HIDDEN
        folded = text.casefold()
        if "\\" not in text and not any(key in folded for key in self.keys):
            return data
        return self._redacted(text).encode()

    def _headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        return {name: "[redacted]" if name.casefold() in self.keys else value for name, value in headers.items()}

    def _redacted(self, text: str) -> str:
        """Replace the values of members; the rest of the text does not change."""
        parts, end, at = [], 0, 0
        while found := _STRING.search(text, at):
            at = found.end()
            if found[2] and self._is_key(found[1]):
                parts += [text[end : found.end(2)], REDACTED]
                _, at = _DECODER.raw_decode(text, at)
                end = at
        return "".join([*parts, text[end:]])

    def _is_key(self, written: str) -> bool:
        name: str = json.loads(written) if "\\" in written else written[1:-1]
        return name.casefold() in self.keys
