"""Where the interop tests cannot run they say why, and they cannot be left out where they are required."""

import os
from pathlib import Path

import pytest

from tests.interop.build import build_peer


def test_a_missing_go_skips_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("FASTQ_REQUIRE_INTEROP", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no `go` on PATH"):
        build_peer()


def test_a_missing_go_fails_where_interop_is_required(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FASTQ_REQUIRE_INTEROP", "1")
    with pytest.raises(pytest.fail.Exception, match="no `go` on PATH"):
        build_peer()


@pytest.mark.interop
def test_the_peer_is_built_from_these_sources(peer_binary: Path) -> None:
    assert os.access(peer_binary, os.X_OK)
    sources = (peer_binary.parent.parent / "peer").glob("*.go")
    assert peer_binary.stat().st_mtime >= max(source.stat().st_mtime for source in sources) - 1
