"""The sites of all versions stand side by side, and the newest release is what one meets first."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("earlier", "met"),
    [(["0.0.9", "0.0.10", "0.0.11rc1"], "0.0.10"), (["0.0.11rc1"], "0.0.11rc2"), (["0.0.11"], "0.0.11")],
)
def test_the_newest_release_is_met_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: list[str], met: str
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    add_version = importlib.import_module("add_version")
    monkeypatch.setattr(add_version, "BUILD", tmp_path / "build")
    monkeypatch.setattr(add_version, "version", lambda: "0.0.11rc2")
    sites = tmp_path / "sites"
    for site in (*(sites / name for name in earlier), tmp_path / "build" / "site"):
        site.mkdir(parents=True)
        (site / "index.html").touch()
    add_version.main(sites)
    rows = json.loads((sites / "versions.json").read_text())
    assert [row["version"] for row in rows if row["aliases"]] == [met]
    assert {row["version"] for row in rows} == {*earlier, "0.0.11rc2"}
    assert f"url={met}/" in (sites / "index.html").read_text()
    assert (sites / "0.0.11rc2" / "index.html").exists()
