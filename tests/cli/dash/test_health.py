"""How it is with Redis, told in words."""

from collections.abc import Callable

import pytest

from fastq.cli.dash.health import Health
from fastq.errors import BrokerAuthError, BrokerConnectionError, BrokerTimeoutError, FastqError, TaskNotFoundError


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def ask(health: Health, error: FastqError, wait: Callable[[], None] = lambda: None) -> None:
    """Ask Redis, wait, and meet an error."""
    with health.asking():
        wait()
        raise error


def test_silence_is_told_after_two_seconds_and_failures_since_they_began() -> None:
    clock = Clock()
    health = Health(clock)
    assert str(health) == ""

    def wait() -> None:
        clock.now_s += 1.5
        assert str(health) == ""
        clock.now_s += 1.5
        assert str(health) == "Redis has not answered for 3s"
        assert not health.is_ill

    ask(health, BrokerTimeoutError("no\nanswer\x1b"), wait)
    assert health.is_ill
    clock.now_s += 9
    assert str(health) == r"Redis does not answer since 12s: no answer\x1b"
    ask(health, BrokerConnectionError("gone"))
    assert str(health) == "Redis does not answer since 12s: gone"
    ask(health, BrokerAuthError("wrong password"))
    assert str(health) == "Redis refuses since 12s: wrong password"
    with health.asking():
        pass
    assert str(health) == ""
    assert not health.is_ill


def test_other_errors_pass_and_are_no_illness() -> None:
    health = Health()
    with pytest.raises(TaskNotFoundError):
        ask(health, TaskNotFoundError("q", "t"))
    assert str(health) == ""
