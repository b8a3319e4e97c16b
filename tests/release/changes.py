"""The part of CHANGELOG.md that is about one version: ``python -m tests.release.changes`` prints this version's."""

import re
import sys
from pathlib import Path
from typing import Final

from fastq._version import __version__

ROOT: Final = Path(__file__).parents[2]


def changes(version: str, text: str) -> str:
    """Return the changes of a version without its heading; empty where there is none."""
    section = re.search(rf"^## \[{re.escape(version)}\].*\n((?s:.*?))(?=^## |\Z)", text, re.MULTILINE)
    return section[1].strip() if section else ""


def released_on(version: str, text: str) -> str:
    """Return the date behind the heading of a version, or an empty string."""
    heading = re.search(rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$", text, re.MULTILINE)
    return heading[1] if heading else ""


if __name__ == "__main__":
    sys.stdout.write(changes(__version__, (ROOT / "CHANGELOG.md").read_text("utf-8")) + "\n")
