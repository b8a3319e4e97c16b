"""Every page is in the contents of the site, and the site is built without a link that leads nowhere."""

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.blocks import PAGES, ROOT

BUILDER = ROOT / "docs" / "make_site.py"
SITE = ROOT / "build" / "site"


def pages_in(contents: Any) -> Iterator[str]:
    for entry in contents:
        if isinstance(entry, str):
            yield entry
        else:
            yield from pages_in(entry[1])


def test_the_contents_have_every_page_once() -> None:
    others = [*ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md"), ROOT / "tests" / "interop" / "README.md"]
    pages = {str(page.relative_to(ROOT)).replace("README.md", "index.md") for page in [*PAGES, *others]}
    listed = list(pages_in(runpy.run_path(str(BUILDER))["contents"]()))
    assert set(listed) == pages, "each page has a row on docs/README.md, docs/api/README.md or docs/cli/README.md"
    assert len(listed) == len(pages)


@pytest.mark.slow
def test_the_site_is_built_without_a_bad_link() -> None:
    pytest.importorskip("zensical")
    done = subprocess.run([sys.executable, str(BUILDER)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "docs/tutorial/1-first-task/" in (SITE / "index.html").read_text()
    targets = re.findall(r"^- \[.*?\]\((.*?)\): \w", (SITE / "llms.txt").read_text(), re.MULTILINE)
    assert "docs/limits.md" in targets
    assert [target for target in targets if not (SITE / target).is_file()] == []


def test_the_overview_has_a_title_and_a_line_for_each_page() -> None:
    rows = re.findall(r"^\| \[(.*?)\]\((.*?)\)", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE)
    assert [title for title, _ in rows if title.endswith((".md", "/"))] == [], "a file name tells readers nothing"
    listed = runpy.run_path(str(BUILDER))["list_for_programs"]()
    assert [target for _, target in rows if target.rpartition("/")[2].replace("README", "index") not in listed] == []
    assert listed.startswith("# fastq ")
