"""Redaction: payloads and results are hidden, or the values of named JSON members are replaced."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from fastq.info import TaskInfo
from fastq.web.payloads import tokens_of

__all__ = ["HIDDEN", "Redaction"]

HIDDEN: Final = b"[hidden]"
REDACTED: Final = '"[redacted]"'
MOST_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Redaction:
    """The parts of payloads, results and headers that are replaced before anything else sees them.

    ``keys`` are names of members of JSON objects, in lower case. Bytes that are not JSON, or too many to look through,
    cannot be redacted, so with ``keys`` they are hidden.
    """

    hides: bool = False
    keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, hides: bool, keys: Iterable[str]) -> "Redaction":
        """Check the keys; ``ValueError`` for an empty one."""
        names = frozenset(key.casefold() for key in keys)
        if "" in names:
            raise ValueError("redact: '' is not the name of a member")
        return cls(hides, names)

    def task(self, info: TaskInfo) -> TaskInfo:
        """Return a task as it may be shown."""
        if not self.hides and not self.keys:
            return info
        result = None if info.result is None else self.data(info.result)
        return replace(info, payload=self.data(info.payload), result=result, headers=self._headers(info.headers))

    def data(self, data: bytes) -> bytes:
        """Return a payload or a result as it may be shown."""
        if not data or not (self.hides or self.keys):
            return data
        if self.hides or len(data) > MOST_BYTES:
            return HIDDEN
        try:
            text = data.decode()
            json.loads(text)
        except (ValueError, RecursionError):
            return HIDDEN
        return self._redacted(text).encode()

    def _headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        return {name: "[redacted]" if name.casefold() in self.keys else value for name, value in headers.items()}

    def _redacted(self, text: str) -> str:
        """Replace the values of members; all else stays as it was written, digit for digit."""
        parts, end, depth = [], 0, 0
        is_hidden = False  # within the value that is replaced, whose brackets ``depth`` counts
        token = before = ""
        for match in tokens_of(text):
            before, token = token, match[0]
            if is_hidden:
                depth += (token in "{[") - (token in "}]")
                if depth == 0:
                    is_hidden, end = False, match.end()
            elif token == ":" and json.loads(before).casefold() in self.keys:
                is_hidden = True
                parts += [text[end : match.end()], REDACTED]
        return "".join([*parts, text[end:]])
