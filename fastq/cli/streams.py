"""Handles output that cannot be written: the reader has closed the pipe, the disk is full, or the stream was closed
from the start. If the reader has closed the pipe, the command ends silently with code 1, as in click.
"""

import errno
import os
import select
import sys
from contextlib import suppress
from io import TextIOWrapper, UnsupportedOperation
from pathlib import Path
from typing import Any, Final

import click

from fastq.text.human import clean

_UNWRITABLE: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def open_streams() -> None:
    """Make stdout and stderr writable: a closed stream then discards output, and both accept any character."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open as long as the process
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character that the encoding lacks must not raise


def was_closed(stream: Any) -> bool:
    """Return whether a stream was closed before the command started."""
    return getattr(stream, "name", None) == os.devnull


def end_unwritten(error: OSError) -> str:
    """Discard all further output; return a message about the error, or raise ``error`` if no standard stream caused it.
    Otherwise the flush at the interpreter's end would fail again and print a traceback.
    """
    if error.errno not in _UNWRITABLE or error.filename is not None:
        raise error
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                stream.close()
    if error.errno == errno.EPIPE or sys.stderr.closed:
        return ""
    return f"cannot write: {os.strerror(error.errno)}"


def check_reader() -> None:
    """Raise ``BrokenPipeError`` if stdout has no reader any more."""
    try:
        number = sys.stdout.fileno()
    except UnsupportedOperation:
        return
    poll = select.poll()
    poll.register(number, 0)
    if poll.poll(0):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def say_failure(text: str) -> None:
    """Print an error on stderr as one line."""
    click.echo(f"fastq: {clean(' '.join(text.split()))}", err=True)
