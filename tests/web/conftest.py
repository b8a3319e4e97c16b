"""The patience of the pages: by default they wait half a second for what they begin, and then say that it goes on."""

import pytest

from fastq.web.auth import SCRYPT
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("search.SETTLE_S", "v1.SETTLE_S", "doctor.SETTLE_S", "orders.QUICK_S"):
        monkeypatch.setattr(f"fastq.web.{name}", PATIENCE_S)
    monkeypatch.setattr("fastq.inspector.doctor.examination.SECOND_LOOK_S", 0.0)


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash passwords within a millisecond."""
    monkeypatch.setitem(SCRYPT, "n", 2)
