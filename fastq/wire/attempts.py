"""The failed attempts of a task: a field of the task's hash that asynq does not have.

The last five attempts are kept, each as a record of 160 bytes.

A record has no text of unknown length. The traceback, without messages, is kept once for all tasks of a queue that
failed in the same place, under the fingerprint of the error (``broker/operations/errors.py``).
"""

from struct import Struct
from typing import Final, NamedTuple

_FORMAT: Final = 1
_LAYOUT: Final = Struct(">BIQQ8s36s95s")
_NO_FINGERPRINT: Final = bytes(8)
_SERVER_BYTES: Final = 36
_ERROR_BYTES: Final = 95
_MORE: Final = "…".encode()


class AttemptRecord(NamedTuple):
    """A failed attempt; times are Unix milliseconds, 0 if unknown.

    ``attempt`` counts from 1. ``server`` is "host:pid", empty if unknown. ``error`` is the class and as much of the
    message as fits. ``fingerprint`` has 16 hexadecimal digits, or is empty for an error without traceback.
    """

    attempt: int
    started_ms: int
    ended_ms: int
    server: str
    error: str
    fingerprint: str = ""

    def encode(self) -> bytes:
        """Return the record as bytes; all records have the same size."""
        return encode_attempt(*self)


def encode_attempt(
    attempt: int, started_ms: int, ended_ms: int, server: str, error: str, fingerprint: str = ""
) -> bytes:
    """Return the bytes of an ``AttemptRecord`` without making one."""
    digits = bytes.fromhex(fingerprint) or _NO_FINGERPRINT
    named = server.encode("utf-8", "replace")
    return _LAYOUT.pack(_FORMAT, attempt % 2**32, started_ms, ended_ms, digits, named, _cut(error))


def decode_attempts(data: bytes) -> list[AttemptRecord]:
    """Read the records of a task, the oldest first; records of other formats are left out."""
    if len(data) % _LAYOUT.size:
        return []
    found = []
    for version, attempt, started_ms, ended_ms, fingerprint, server, error in _LAYOUT.iter_unpack(data):
        if version == _FORMAT:
            digits = "" if fingerprint == _NO_FINGERPRINT else fingerprint.hex()
            found.append(AttemptRecord(attempt, started_ms, ended_ms, _text(server), _text(error), digits))
    return found


def own_traceback(kept: str, error: str) -> str:
    """Return the traceback of one error: ``kept``, which ends with the error's class, and the error's message."""
    name = kept.rpartition("\n")[2].rpartition(".")[2]
    return kept + error.removeprefix(name) if error.startswith(name) else kept


def server_name(host: str, pid: int) -> str:
    """Return "host:pid" as records have it.

    Only the end of a long host name is kept, since the ends differ between pods of a deployment.
    """
    name = f"{host}:{pid}".encode("utf-8", "replace")
    if len(name) <= _SERVER_BYTES:
        return name.decode()
    return (_MORE + name[len(name) - _SERVER_BYTES + len(_MORE) :]).decode(errors="ignore")


def _cut(error: str) -> bytes:
    # The text is cut before it is encoded, since it may have 64 000 characters.
    text = error[: _ERROR_BYTES + 1].encode("utf-8", "replace")
    if len(text) <= _ERROR_BYTES:
        return text
    return text[: _ERROR_BYTES - len(_MORE)].decode(errors="ignore").encode() + _MORE


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode(errors="replace")
