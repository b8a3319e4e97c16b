"""The page of the dashboard names its keys and options, and has a picture of each view."""

import re
from pathlib import Path

import pytest

from fastq.cli.dash.command import dash
from fastq.cli.dash.help import ACTS, KEYS
from tests.cli.dash.screenshots import DIRECTORY, VIEWS

PAGE = (DIRECTORY.parent / "dash.md").read_text()
PICTURES = sorted(DIRECTORY.iterdir())


def test_every_picture_is_on_the_page_and_taken_by_the_script() -> None:
    assert {f"dash/{path.name}" for path in PICTURES} == set(re.findall(r"\]\((dash/.*?)\)", PAGE))
    assert {path.stem for path in PICTURES} == {"queues", "wide", *(name for _, _, name in VIEWS)}


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_small_and_fetches_nothing(path: Path) -> None:
    text = path.read_text()
    assert len(text) < 150_000
    assert "url(http" not in text
    assert "@import" not in text
    assert "href" not in text
    assert "/tmp/" not in text


def test_every_key_of_the_help_is_on_the_page() -> None:
    for keys, _ in (*KEYS, *ACTS):
        for key in keys.split():
            assert re.search(rf"^\|.*{re.escape(key)}.*\|.*\|$", PAGE, re.MULTILINE), key


def test_every_option_is_on_the_page() -> None:
    for option in dash.params:
        if not getattr(option, "hidden", False):
            assert f"`{option.opts[0]}`" in PAGE
