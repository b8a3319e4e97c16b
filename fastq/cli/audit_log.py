"""The file of ``$FASTQ_AUDIT_LOG``: a line of JSON for each change that is made with ``fastq``."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fastq.errors import FastqError

_log = logging.getLogger("fastq.audit")


@contextmanager
def audit_log(path: str | None) -> Iterator[None]:
    """Append each change in the block to a file; ``FastqError``, before any change, if the file cannot be written."""
    if not path:
        yield
        return
    try:
        handler = logging.FileHandler(path)
    except OSError as error:
        raise FastqError(f"$FASTQ_AUDIT_LOG={path!r} cannot be written: {error.strerror or error}") from None
    level = _log.level
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.setLevel(level)
        _log.removeHandler(handler)
        handler.close()
