import os
import socket

import pytest

from fastq.pool.shared.control import Channel, ChannelBusyError, ChannelClosedError, Frame
from tests.pool.harness import no_descriptors


def test_frames_arrive_in_order_each_with_its_own_descriptors() -> None:
    near, far = Channel.pair()
    pipes = [os.pipe() for _ in range(3)]
    near.send("none", number=1)
    near.send("two", [pipes[0][0], pipes[1][0]], text="x")
    near.send("none")
    near.send("one", [pipes[2][0]])
    frames = [far.receive() for _ in range(4)]
    assert [(frame.op, len(frame.fds)) for frame in frames] == [("none", 0), ("two", 2), ("none", 0), ("one", 1)]
    assert (frames[0].number("number"), frames[1].text("text"), frames[1].number("text")) == (1, "x", 0)
    for fd, (read_fd, write_fd) in zip([*frames[1].fds, *frames[3].fds], pipes, strict=True):
        os.write(write_fd, b"!")
        assert os.read(fd, 1) == b"!"
        assert not os.get_inheritable(fd)
        for one in (fd, read_fd, write_fd):
            os.close(one)
    near.close()
    far.close()


def test_descriptors_that_were_lost_on_the_way_are_those_of_their_own_frame() -> None:
    """Else the next frame's would be taken for them, and one task's payload or result for another's."""
    near, far = Channel.pair()
    fds = [os.memfd_create(name) for name in ("lost", "kept")]
    near.send("lost", fds[:1])
    with no_descriptors():
        assert far.receive() == Frame("lost", {}, [])
    near.send("none")
    near.send("kept", fds[1:])
    assert far.receive().fds == []
    (received,) = far.receive().fds
    assert os.fstat(received).st_ino == os.fstat(fds[1]).st_ino
    for fd in (*fds, received):
        os.close(fd)
    near.close()
    far.close()


def test_polling_tells_nothing_yet_from_gone() -> None:
    near, far = Channel.pair()
    far.set_blocking(False)
    assert far.poll() is None
    near.send("last")
    near.close()
    frame = far.poll()
    assert frame is not None
    assert frame.op == "last"
    with pytest.raises(ChannelClosedError, match="gone"):
        far.poll()
    with pytest.raises(ChannelClosedError, match="cannot send"):
        far.send("hello")
    far.close()


def test_a_reader_that_does_not_read_is_an_error_and_not_a_wait() -> None:
    near, far = Channel.pair()
    near.set_blocking(False)

    def flood() -> None:
        for _ in range(100_000):
            near.send("flood", text="x" * 1000)

    with pytest.raises(ChannelBusyError, match="cannot send"):
        flood()
    while far.poll() is not None:
        pass
    near.send("again")
    assert far.receive().op == "again", "nothing of what was refused was sent"
    near.close()
    far.close()


def test_an_empty_frame_wakes_and_says_nothing() -> None:
    one, other = socket.socketpair()
    near, far = Channel(one), Channel(other)
    near.send("first")
    for _ in range(3):
        one.send(bytes(4))
    near.send("second")
    far.drain()
    far.drain()
    assert [far.receive().op, far.receive().op] == ["first", "second"]
    assert far.poll() is None
    near.close()
    far.close()


def test_a_text_longer_than_the_sockets_buffer_arrives_whole() -> None:
    near, far = Channel.pair()
    text = "ü" * 60_000
    pid = os.fork()
    if pid == 0:
        far.close()
        near.send("failed", text=text)
        os._exit(0)
    near.close()
    assert far.receive().text("text") == text
    os.waitpid(pid, 0)
    far.close()


def test_a_length_that_is_not_ours_is_refused() -> None:
    one, other = socket.socketpair()
    one.send(b"\xff\xff\xff\xff")
    far = Channel(other)
    with pytest.raises(ChannelClosedError, match="not ours"):
        far.receive()
    one.close()
    far.close()


def test_descriptors_that_nobody_took_are_closed() -> None:
    near, far = Channel.pair()
    read_fd, write_fd = os.pipe()
    near.send("first", [write_fd])
    near.send("second", [write_fd])
    os.close(write_fd)
    (fd,) = far.receive().fds
    os.close(fd)
    far.set_blocking(False)
    far.close()
    near.close()
    assert os.read(read_fd, 1) == b""
    os.close(read_fd)
