"""What a server says at its start."""

import sys

import pytest

from fastq.server.run import warn_without_gil


@pytest.mark.parametrize("on", [True, False])
def test_a_python_without_the_gil_is_warned_of(
    on: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: on, raising=False)
    warn_without_gil()
    assert ["without the GIL" in record.message for record in caplog.records] == [True] * (not on)


def test_a_python_that_has_no_such_switch_is_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)
    warn_without_gil()
    assert caplog.records == []
