"""A release's changes, page and links are those of its version; archives hold nothing of the machine."""

import os
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from fastq._version import __version__
from tests import pythons
from tests.release.changes import changes, released_on

ROOT = Path(__file__).parents[2]
ADDRESS = "https://github.example/the/fastq"
CHANGELOG = "# Changelog\n\n## [0.2.0] - unreleased\n\nNew.\n\n## [0.2.0rc1] - 2027-01-02\n\n### Added\n- One.\n"


def test_a_version_has_its_own_changes() -> None:
    assert changes("0.2.0rc1", CHANGELOG) == "### Added\n- One."
    assert changes("0.2.0", CHANGELOG) == "New."
    assert changes("0.3.0", CHANGELOG) == ""


def test_a_released_version_has_a_date() -> None:
    assert released_on("0.2.0rc1", CHANGELOG) == "2027-01-02"
    assert released_on("0.2.0", CHANGELOG) == ""


def test_this_version_has_changes() -> None:
    assert changes(__version__, (ROOT / "CHANGELOG.md").read_text("utf-8"))


def test_links_of_the_page_lead_to_the_tag(setup: ModuleType) -> None:
    text = "[a\nb](docs/x.md#y) ![p](a/b.png) [c](https://x.example) [d](#e) `[f](g)`"
    assert setup.page(text, ADDRESS, "v1") == (
        f"[a\nb]({ADDRESS}/blob/v1/docs/x.md#y) ![p]({ADDRESS}/raw/v1/a/b.png) [c](https://x.example) [d](#e)"
        f" `[f]({ADDRESS}/blob/v1/g)`"
    )


def test_without_an_address_there_are_no_links(setup: ModuleType) -> None:
    assert setup.page("[a](b)", "", "v1") == "[a](b)"
    assert setup.urls("", "v1") == {}
    assert setup.urls(ADDRESS, "v1")["Documentation"] == "https://the.github.io/fastq/1/"


def test_an_sdist_holds_nothing_of_the_machine(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    packed = []
    for time_s in (1, 2):
        for name in ("b", "a"):
            (tmp_path / "fastq-1" / name).parent.mkdir(exist_ok=True)
            (tmp_path / "fastq-1" / name).write_text(name)
            os.utime(tmp_path / "fastq-1" / name, (time_s, time_s))
        archive = setup.Sdist.make_archive(None, "fastq-1", "gztar", base_dir="fastq-1")
        packed.append(Path(archive).read_bytes())
    assert packed[0] == packed[1]
    with tarfile.open("fastq-1.tar.gz") as opened:
        assert {(entry.mtime, entry.uid, entry.uname) for entry in opened} == {(1700000000, 0, "")}
        assert opened.getnames() == ["fastq-1", "fastq-1/a", "fastq-1/b"]


def test_the_python_of_this_process_is_found() -> None:
    assert "" not in pythons.found()
    assert all(pythons.version_of(python) == version for version, python in pythons.found().items())
    assert pythons.version_of("/bin/false") == ""
