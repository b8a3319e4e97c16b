"""docs/api says of every public name what the code says."""

import os
import re
import subprocess
import sys

import pytest

import fastq
import fastq.cron
import fastq.errors
import fastq.testing
import fastq.wire.codec
import fastq.wire.keys
from tests.docs.blocks import ROOT

API = ROOT / "docs" / "api"


@pytest.fixture(scope="module")
def titles() -> set[str]:
    """Return the names that have a heading."""
    text = "".join(page.read_text() for page in API.glob("*.md"))
    return set(re.findall(r"^#{3} `(?:await )?(\w+)", text, re.MULTILINE))


def test_the_pages_are_those_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "docs" / "make_api.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert checked.returncode == 0, f"run `make docs`: {checked.stdout}{checked.stderr}"


@pytest.mark.parametrize("module", [fastq, fastq.testing, fastq.wire.codec, fastq.cron, fastq.errors])
def test_every_public_name_is_there(module: object, titles: set[str]) -> None:
    names = set(getattr(module, "__all__", ())) - {"__version__"}
    assert len(names) > 2
    assert names - titles == set()


def test_every_key_is_there(titles: set[str]) -> None:
    assert {name for name in fastq.wire.keys.__all__ if not name.isupper()} - titles == set()
