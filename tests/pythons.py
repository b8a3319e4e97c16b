"""Finds the Pythons of this machine: on PATH, of pyenv, of uv."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ASKS: Final = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2] + getattr(sys, 'abiflags', ''))"
OLDEST: Final = 311


def found() -> dict[str, str]:
    """Return a Python for each version from 3.11 on, the oldest first, and its path."""
    pythons: dict[str, str] = {}
    for each in _candidates():
        version = version_of(each)
        if version and int(re.sub(r"\D", "", version)) >= OLDEST:
            pythons.setdefault(version, each)
    return dict(sorted(pythons.items()))


def version_of(python: str) -> str:
    """Return the version of a Python, "3.13" or "3.13t"; empty where it is none that can make environments."""
    done = subprocess.run([python, "-c", ASKS], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _candidates() -> Iterator[str]:
    yield sys.executable
    names = [f"python3.{minor}{kind}" for minor in range(11, 20) for kind in ("", "t")]
    yield from filter(None, map(shutil.which, names))
    homes = (
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions"),
        Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local" / "share" / "uv" / "python")),
    )
    for home in homes:
        yield from map(str, sorted(home.glob("*3.1[1-9]*/bin/python3"), reverse=True))
