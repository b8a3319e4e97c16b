"""The patience of the pages: by default they wait half a second for what they begin, and then say that it goes on."""

import pytest

from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("search.SETTLE_S", "v1.SETTLE_S", "doctor.SETTLE_S", "bulk.QUICK_S"):
        monkeypatch.setattr(f"fastq.web.{name}", PATIENCE_S)
