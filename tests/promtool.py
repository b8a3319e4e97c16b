"""Prometheus' own tool, where it is installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def promtool(*words: str, at: Path | None = None, text: str = "") -> str:
    """Run promtool in a directory with a text as its input; return what it says, of problems too."""
    found = shutil.which("promtool")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("promtool (Debian's prometheus) is not installed")
    done = subprocess.run([found, *words], cwd=at, capture_output=True, text=True, input=text)
    # It ends with 3 where metrics can be read, but are not named as Prometheus advises.
    assert done.returncode in (0, 3), done.stdout + done.stderr
    return done.stdout + done.stderr
