"""Failed starts: each waits longer for the next, and only a pool that has never worked gives up."""

import pytest

from fastq.pool.main.failures import Failures


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the clock: a list with the time in it."""
    clock = [100.0]
    monkeypatch.setattr("fastq.pool.main.failures.time.monotonic", lambda: clock[0])
    return clock


def waits(failures: Failures, now_s: list[float], count: int) -> list[float]:
    """Let so many starts fail one after another, and return how long each was waited for."""
    found = []
    for _ in range(count):
        failures.count()
        found.append(round(failures.wait_s, 3))
        now_s[0] += failures.wait_s
        assert failures.wait_s == 0
    return found


def test_each_failure_waits_longer_up_to_half_a_minute(now_s: list[float]) -> None:
    found = waits(Failures(), now_s, 10)
    assert found == sorted(found)
    assert found[0] < 0.5
    assert found[-1] == 30.0


def test_a_pool_that_has_never_worked_gives_up_after_five(now_s: list[float]) -> None:
    failures = Failures()
    waits(failures, now_s, 4)
    assert not failures.are_too_many
    failures.count()
    assert failures.are_too_many


def test_another_try_need_not_wait_and_counts_on(now_s: list[float]) -> None:
    failures = Failures()
    assert not failures
    failures.count()
    failures.try_now()
    assert failures
    assert failures.wait_s == 0
    failures.clear()
    assert not failures


def test_a_pool_that_has_worked_never_gives_up_and_begins_anew_when_it_works_again(now_s: list[float]) -> None:
    failures = Failures()
    before = waits(failures, now_s, 3)
    failures.clear()
    assert waits(failures, now_s, 20)[:3] == before
    assert not failures.are_too_many
