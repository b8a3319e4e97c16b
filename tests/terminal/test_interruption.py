"""Signals are noted, not obeyed on the spot."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from fastq.terminal.interruption import Interrupted, Interruption
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def handlers_are_put_back() -> Iterator[None]:
    signums = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {signum: signal.getsignal(signum) for signum in signums}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_shows_when_it_is_asked_for(signum: signal.Signals) -> None:
    with Interruption() as interruption:
        interruption.check()
        os.kill(os.getpid(), signum)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted, match=signum.name) as caught:
            interruption.check()
    assert caught.value.signum == signum


def test_waiting_ends_with_a_signal() -> None:
    with Interruption() as interruption:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(Interrupted):
            interruption.wait(PATIENCE_S)
        timer.join()


def test_without_a_signal_all_is_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as interruption:
        interruption.wait(0.001)
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_what_ignores_the_end_of_its_terminal_goes_on_doing_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGHUP)
        interruption.check()
