"""Memory that processes share and that leaves nothing behind.

It is a memfd on Linux, passed by its descriptor, and elsewhere a file that is unlinked before use. Neither has a name,
counts against ``/dev/shm``, or outlives the last process that holds it.
"""

import errno
import os
import struct
import tempfile
from typing import Self

from fastq.pool.shared import layout
from fastq.pool.shared._memory import map_shared
from fastq.pool.shared.layout import Layout

_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)  # by the seccomp profile of a container


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("fastq", os.MFD_CLOEXEC)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
    fd, path = tempfile.mkstemp(prefix="fastq-")
    os.unlink(path)
    return fd


class Segment:
    """Mapped shared memory, and its descriptor until ``close_fd``."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self.memory = map_shared(fd, size)

    @classmethod
    def create(cls, size: int) -> Self:
        """Make a zeroed segment of ``size`` bytes."""
        fd = _anonymous_file()
        try:
            os.ftruncate(fd, size)
            return cls(fd, size)
        except OSError:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int) -> Self:
        """Map the segment behind a received descriptor, and take ownership of the descriptor."""
        return cls(fd, os.fstat(fd).st_size)

    def close_fd(self) -> None:
        """Close the descriptor; the mapping lives as long as something refers to it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def write_header(segment: Segment, shape: Layout) -> None:
    """Stamp a new segment so that a child can check that it uses the same layout."""
    words = (layout.MAGIC, layout.VERSION, shape.rows, shape.threads)
    struct.pack_into("=IIII", segment.memory, layout.MAGIC_AT, *words)
    struct.pack_into("=Q", segment.memory, layout.RING_BYTES_AT, shape.ring_bytes)


def read_header(segment: Segment) -> Layout:
    """Return the layout that the segment was made with.

    Raises ``ValueError`` when another version of fastq made it.
    """
    magic, version, rows, threads = struct.unpack_from("=IIII", segment.memory, layout.MAGIC_AT)
    if magic != layout.MAGIC or version != layout.VERSION:
        raise ValueError(f"shared memory has magic {magic:#x} version {version}, this fastq reads {layout.VERSION}")
    (ring_bytes,) = struct.unpack_from("=Q", segment.memory, layout.RING_BYTES_AT)
    return Layout(rows, ring_bytes, threads)


def pack_segment(data: bytes | memoryview) -> int:
    """Put ``data`` into a segment; return the segment's descriptor, for the caller to close."""
    fd = _anonymous_file()
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    except BaseException:  # a handler's own signal handler may raise here
        os.close(fd)
        raise
    return fd


def unpack_segment(fd: int, size: int) -> bytes:
    """Return the bytes of a segment and close its descriptor.

    Raises ``ValueError`` when it does not hold ``size`` bytes.
    """
    try:
        if os.fstat(fd).st_size != size:
            raise ValueError(f"a segment of {os.fstat(fd).st_size} bytes was announced with {size}")
        data = bytearray()
        while len(data) < size:
            part = os.pread(fd, min(size - len(data), 1 << 24), len(data))
            if not part:
                break
            data += part
    finally:
        os.close(fd)
    if len(data) != size:
        raise ValueError(f"a segment of {len(data)} bytes was announced with {size}")
    return bytes(data)
