"""Every page is in the contents of the site, and the site is built without a link that leads nowhere."""

import runpy
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.blocks import PAGES, ROOT

BUILDER = ROOT / "docs" / "make_site.py"


def pages_in(contents: Any) -> Iterator[str]:
    for entry in contents:
        if isinstance(entry, str):
            yield entry
        else:
            yield from pages_in(entry[1])


def test_the_contents_have_every_page_once() -> None:
    others = [*ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md", ROOT / "tests" / "interop" / "README.md"]
    pages = {str(page.relative_to(ROOT)).replace("README.md", "index.md") for page in [*PAGES, *others]}
    listed = list(pages_in(runpy.run_path(str(BUILDER))["contents"]()))
    assert set(listed) == pages, "each page has a row on docs/README.md, docs/api/README.md or docs/cli/README.md"
    assert len(listed) == len(pages)


@pytest.mark.slow
def test_the_site_is_built_without_a_bad_link() -> None:
    pytest.importorskip("zensical")
    done = subprocess.run([sys.executable, str(BUILDER)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "docs/tutorial/1-first-task/" in (ROOT / "build" / "site" / "index.html").read_text()
