import os
import platform

import pytest

from fastq.pool.shared import layout
from fastq.pool.shared._memory import give_back_free_memory
from fastq.pool.shared.layout import Layout
from fastq.pool.shared.memory import Segment, pack_segment, read_header, unpack_segment, write_header
from fastq.pool.shared.processes import own_rss


def test_two_mappings_of_a_segment_share_their_bytes() -> None:
    one = Segment.create(8192)
    other = Segment.attach(os.dup(one.fd))
    one.memory[5000:5003] = b"abc"
    assert bytes(other.memory[5000:5003]) == b"abc"
    assert other.size == 8192
    for segment in (one, other):
        segment.close_fd()
    assert bytes(one.memory[5000:5003]) == b"abc"


def test_a_segment_without_memfd_is_a_file_that_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    segment = Segment.create(4096)
    assert os.fstat(segment.fd).st_nlink == 0
    segment.close_fd()


def test_a_mapping_needs_no_descriptor() -> None:
    before = {fd for fd in os.listdir("/proc/self/fd") if "memfd:fastq" in _target(fd)}
    segment = Segment.create(4096)
    segment.close_fd()
    assert {fd for fd in os.listdir("/proc/self/fd") if "memfd:fastq" in _target(fd)} <= before
    segment.memory[4095] = 7
    assert segment.memory[4095] == 7
    with pytest.raises(IndexError):
        segment.memory[4096] = 7


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no way to be asked")
def test_memory_that_lies_free_between_blocks_is_given_back() -> None:
    blocks = [bytes(4000) for _ in range(5_000)]
    kept = blocks[::1000]
    before = own_rss()
    del blocks
    give_back_free_memory()
    assert before - own_rss() > 10_000_000
    assert len(kept) == 5


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # the listing's own
        return ""


def test_what_cannot_be_mapped_says_why() -> None:
    fd = os.open("/proc/self/status", os.O_RDONLY)
    with pytest.raises(PermissionError):
        Segment(fd, 4096)
    os.close(fd)


def test_a_header_says_with_which_layout_a_segment_was_made() -> None:
    shape = Layout(7, 1 << 14)
    segment = Segment.create(shape.size)
    write_header(segment, shape)
    assert read_header(segment) == shape
    segment.memory[layout.VERSION_AT] += 1
    with pytest.raises(ValueError, match="version"):
        read_header(segment)
    segment.close_fd()


def test_bytes_survive_a_segment_of_their_own() -> None:
    data = os.urandom(3_000_001)
    assert unpack_segment(pack_segment(data), len(data)) == data


def test_a_segment_that_does_not_hold_what_was_announced_is_refused() -> None:
    with pytest.raises(ValueError, match="announced with 4"):
        unpack_segment(pack_segment(b"abc"), 4)
