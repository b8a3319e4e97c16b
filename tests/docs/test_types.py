"""mypy finds nothing wrong with the code of the pages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT, blocks_as_one_program

# What our pages use and tests do not need: a checker takes anything of these.
STRANGERS = ("aiohttp", "psycopg", "torch")


def check(directory: Path, pages: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Check modules that hold the code of a page each, by their names."""
    for name in STRANGERS:
        (directory / f"{name}.pyi").write_text("from typing import Any\ndef __getattr__(name: str) -> Any: ...\n")
    for name, code in pages.items():
        (directory / f"{name}.py").write_text(code)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *(str(directory / f"{name}.py") for name in pages)]
    env = {**os.environ, "MYPYPATH": str(directory)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


def code_of(page: Path) -> str:
    """Join the blocks of a page as they are run: one program, each line where it is on the page."""
    lines = [""] * len(page.read_text().splitlines())
    for block in blocks_as_one_program(page):
        if block.language == "python" and block.note in ("", "typed"):
            code = block.code.splitlines()
            lines[block.line : block.line + len(code)] = code
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_the_python_of_the_pages_is_typed_and_a_task_taken_for_a_running_one_is_found(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    names = {page: "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_") for page in pages()}
    code = {name: code_of(page) for page, name in names.items()}
    wrong = code["docs_handlers_by_type"].replace("request = task.json()", "request = task.jsno()", 1)
    done = check(tmp_path, code | {"wrong": wrong})
    # mypy's cache may say it with the directory of an earlier run.
    assert [line for line in done.stdout.splitlines() if "/wrong.py:" not in line] == []
    assert '"RunningTask" has no attribute "jsno"' in done.stdout


def pages() -> list[Path]:
    return [page for page in [ROOT / "README.md", *PAGES] if code_of(page).strip()]
