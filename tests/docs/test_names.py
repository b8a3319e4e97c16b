"""The paths, flags and variables that the pages name exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from fastq.cli.environment import KNOWN_VARIABLES
from fastq.cli.main import main
from fastq.cli.worker import main as worker
from tests.cli.commands import commands_of
from tests.docs.blocks import FENCE, PAGES, ROOT

OTHERS: Final = [*sorted((ROOT / "benchmarks").glob("*.md")), ROOT / "tests" / "interop" / "README.md"]
ALL_PAGES: Final = [*PAGES, *sorted(ROOT.glob("*.md")), *OTHERS]
FOLDERS: Final = (".ci", ".github", "benchmarks", "docs", "fastq", "tests")
ENDS: Final = "py|pyx|pyi|pxd|pxi|h|lua|toml|md|json|yml|jinja|js|proto"
PATH: Final = re.compile(rf"`([\w./-]+\.(?:{ENDS})|[\w.-]+(?:/[\w.-]+)*/)`")
FLAG: Final = re.compile(r"(?<![\w-])--[a-z][a-z_-]+")
VARIABLE: Final = re.compile(r"(?<!_)FASTQ_[A-Z][A-Z_]*[A-Z]\b")

NOT_KEPT: Final = ("build/", "dist/")
"""Folders that ``make`` makes."""
EXAMPLES: Final = {
    "CONTRIBUTING.md": {"fastq/x.py", "tests/test_x.py", "fastq/pool/y.py", "tests/pool/test_y.py"},
    "benchmarks/compared.md": {"faults.md", "faults.json"},
    "docs/celery.md": {"shop/celery.py"},
    "docs/handlers-by-type.md": {"images.py"},
    "docs/sqlalchemy.md": {"env.py"},
    "docs/tutorial/1-first-task.md": {"shop.py"},
    "docs/tutorial/2-failures.md": {"shop.py"},
    "docs/tutorial/3-twice.md": {"shop.py"},
    "docs/web-ui.md": {"/api/v1/openapi.json", "asgi.py"},
}
"""Files of the reader's, and what is no path."""
OF_OTHERS: Final = {
    "--benchmark-enable": "pytest-benchmark",
    "--cpus": "docker",
    "--default_lua_flags": "Dragonfly",
    "--detach": "docker",
    "--init": "docker",
    "--instr-atstart": "valgrind",
    "--max-jobs": "rq",
    "--num-workers": "rq",
    "--pool": "celery",
    "--preload": "gunicorn",
    "--processes": "dramatiq",
    "--scale": "docker",
    "--strict": "zensical",
    "--timeout-graceful-shutdown": "uvicorn",
    "--tool": "valgrind",
    "--worker-type": "huey",
    "--workers": "huey",
}


def prose_of(page: Path) -> str:
    """Return a page without its blocks of code, which ``test_blocks`` reads."""
    return FENCE.sub("", page.read_text())


def flags_of(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from (*parameter.opts, *parameter.secondary_opts)
    for one in commands_of(command).values() if isinstance(command, click.Group) else ():
        yield from flags_of(one)


@pytest.fixture(scope="module")
def places() -> set[str]:
    """Return every file and folder by its path and by each end of it, such as ``server/wiring/process.py``."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    parts = [path.relative_to(ROOT).parts for path in [*found, *ROOT.iterdir()]]
    return {"/".join(names[at:]) for names in parts for at in range(len(names))}


@pytest.fixture(scope="module")
def flags() -> set[str]:
    """Return the flags of our commands, and those of the programs of tests and benchmarks."""
    scripts = [path.read_text() for folder in ("benchmarks", "tests") for path in (ROOT / folder).rglob("*.py")]
    added = re.findall(r'add_argument\(\s*"(--[a-z-]+)"', "\n".join(scripts))
    return {*flags_of(main), *flags_of(worker), *added, "--help"}


def test_each_path_is_there(places: set[str]) -> None:
    missing = {
        f"{page.relative_to(ROOT)}: {path}"
        for page in ALL_PAGES
        for path in {*PATH.findall(prose_of(page))} - EXAMPLES.get(str(page.relative_to(ROOT)), set())
        if path.rstrip("/") not in places and not path.startswith(NOT_KEPT)
    }
    assert missing == set()


def test_each_flag_is_one_of_a_command(flags: set[str]) -> None:
    unknown = {
        f"{page.relative_to(ROOT)}: {flag}"
        for page in ALL_PAGES
        for flag in {*FLAG.findall(prose_of(page))} - flags - OF_OTHERS.keys()
    }
    assert unknown == set()


def test_each_variable_is_a_setting() -> None:
    unknown = {
        f"{page.relative_to(ROOT)}: {variable}"
        for page in ALL_PAGES
        if page not in OTHERS
        for variable in {*VARIABLE.findall(page.read_text())} - KNOWN_VARIABLES
    }
    assert unknown == set()
