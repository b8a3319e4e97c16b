import os
import select

import pytest

from fastq.pool.main.wakeup import Wakeup


def refuse(*_: object) -> int:
    raise PermissionError(1, "as a seccomp profile has it")


@pytest.mark.parametrize("eventfd", ["there", "missing", "refused"])
def test_a_wakeup_is_readable_once_however_often_it_rang(eventfd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    has_eventfd = eventfd == "there"
    if eventfd == "missing":
        monkeypatch.delattr(os, "eventfd")
    elif eventfd == "refused":
        monkeypatch.setattr(os, "eventfd", refuse)
    wakeup = Wakeup.create()
    assert (wakeup.read_fd == wakeup.write_fd) == has_eventfd
    poller = select.poll()
    poller.register(wakeup.read_fd, select.POLLIN)
    assert poller.poll(0) == []
    for _ in range(3):
        os.write(wakeup.write_fd, (1).to_bytes(8, "little"))
    assert poller.poll(0)
    while poller.poll(0):
        os.read(wakeup.read_fd, 8)
    wakeup.close()
    assert wakeup.read_fd == -1
