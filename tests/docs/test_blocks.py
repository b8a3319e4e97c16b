"""Every block of code on the pages is run, or at least read by what would run it."""

import ast
import importlib
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from fastq.cli.main import main
from fastq.cli.worker import main as worker
from tests.docs.blocks import PAGES, ROOT, Block, blocks_as_one_program, blocks_of

ALL_PAGES = [*PAGES, ROOT / "README.md"]
BLOCKS = [block for page in ALL_PAGES for block in blocks_of(page)]
NOTES = {"python": {"", "typed", "compiled"}}
OFFERED = {
    "fastq",
    "fastq.contrib.celery",
    "fastq.contrib.django",
    "fastq.contrib.otel",
    "fastq.contrib.sqlalchemy",
    "fastq.contrib.starlette",
    "fastq.cron",
    "fastq.metrics",
    "fastq.testing",
    "fastq.web",
    "fastq.wire",
    "fastq.wire.codec",
}
LANGUAGES = {"python", "go", "sh", "toml", "ini", "yaml", "helm", "dockerfile", "text", ""}


def of(language: str) -> list[Any]:
    return [pytest.param(block, id=block.where) for block in BLOCKS if block.language == language]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_of_a_page_runs(page: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTQ_REDIS_URL", url)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_as_one_program(page):
        if block.language == "python" and not block.note:
            exec(compile("\n" * block.line + block.code, str(page), "exec"), names)


@pytest.mark.parametrize("block", of("python"))
def test_python_compiles_and_what_it_imports_of_fastq_is_there(block: Block) -> None:
    tree = ast.parse(block.code, block.where)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "fastq":
            assert node.module in OFFERED, "no page sends readers into the inner modules"
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("block", [pytest.param(block, id=block.where) for block in BLOCKS])
def test_a_block_is_of_a_kind_that_is_looked_at(block: Block) -> None:
    assert block.language in LANGUAGES
    assert block.note in NOTES.get(block.language, {""})


@pytest.mark.parametrize("block", of("sh"))
def test_our_commands_are_taken(block: Block) -> None:
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(re.sub(r"^\$ ", "", line), comments=True)
        match words:
            case ["fastq", *rest]:
                take(main, rest)
            case ["fastq-worker", *rest]:
                take(worker, rest)


def take(command: click.Command, words: list[str]) -> None:
    """See that a command reads its words; nothing is done."""
    context = click.Context(command, info_name=command.name)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    command.make_context(command.name, words, parent=context)


@pytest.mark.parametrize("block", of("toml"))
def test_toml_is_toml(block: Block) -> None:
    assert tomllib.loads(block.code)


@pytest.mark.parametrize("block", of("go"))
def test_go_is_go(block: Block) -> None:
    gofmt = shutil.which("gofmt")
    if gofmt is None:
        pytest.skip("there is no gofmt on PATH")
    read = subprocess.run([gofmt, "-e", "-l"], input=block.code, capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")
    assert read.stdout == "", "not as gofmt would have it"


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
