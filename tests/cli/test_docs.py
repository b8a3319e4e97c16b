"""What the pages say of ``fastq`` holds: their commands are taken, and no command, option or JSON is missing."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema
import pytest

from fastq.cli.connection import connection_options
from fastq.cli.main import main
from tests.cli.commands import SCHEMA, commands_of
from tests.cli.synopsis import synopsis

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {page.stem: page.read_text() for page in [*(DOCS / "cli").glob("*.md"), DOCS / "dash.md", DOCS / "web-ui.md"]}
TOGETHER = {
    "bench-plan": ("bench", "plan"),
    "worker-scheduler": ("worker", "scheduler", "run", "demo"),
    "README": ("completion", "version"),
    "web-ui": ("web",),
}
"""Which commands share a page; each other group has one of its name."""
PAGE_OF = {word: name for name, words in TOGETHER.items() for word in words}
SHOWN = sorted({line for page in PAGES.values() for line in re.findall(r"^\$ (fastq .*)$", page, re.MULTILINE)})
SHOWN_ELSEWHERE = {"dash", "exporter", "metrics", "outbox", "web"}
"""What is shown in pictures, goes on until a signal, or writes whole files."""
MISTAKEN = ["fastq stast"]


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in commands_of(group).items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize("line", [line for line in SHOWN if line not in MISTAKEN])
def test_the_commands_of_the_pages_are_taken(line: str) -> None:
    taken(line)


def taken(line: str) -> None:
    """See that a line's words are read; nothing is done."""
    words = shlex.split(line)[1:]
    context = click.Context(main, info_name="fastq")
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, line
        command, words = found, words[1:]
    command.make_context(command.name, words, parent=context)


def page_of(path: tuple[str, ...]) -> str:
    return PAGES[PAGE_OF.get(path[0], path[0])]


def synopses(page: str) -> set[str]:
    blocks = re.findall(r"^```text\n(fastq .*?)^```$", page, re.MULTILINE | re.DOTALL)
    return {" ".join(line.split()) for block in blocks for line in re.split(r"\n(?=fastq )", block)}


COMMANDS = [pytest.param(path, command, id=" ".join(path)) for path, command in leaves(main)]


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_every_command_has_its_synopsis_with_all_options_and_output_on_its_page(
    path: tuple[str, ...], command: click.Command
) -> None:
    page = page_of(path)
    assert synopsis(path, command) in synopses(page)
    assert path[0] in SHOWN_ELSEWHERE or re.search(rf"^\$ fastq {' '.join(path)}\b", page, re.MULTILINE)


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_help_ends_with_examples_that_are_taken_and_exit_codes(path: tuple[str, ...], command: click.Command) -> None:
    epilog = command.epilog or ""
    assert "Exit codes: " in epilog or path[0] in ("completion", "version")
    examples = re.findall(r"^  (fastq(?:-worker)? .*)$", epilog, re.MULTILINE)
    assert examples or path == ("version",)
    for line in examples:
        taken(line.replace("fastq-worker", "fastq worker").partition(" | ")[0].partition(" > ")[0])


def test_no_page_tells_of_a_command_that_there_is_not() -> None:
    groups = {name for name in commands_of(main) if name not in PAGE_OF}
    assert set(PAGES) == {*groups, *TOGETHER}
    known = {synopsis(path, command) for path, command in leaves(main)}
    for page in PAGES.values():
        assert synopses(page) - known == set()


def test_every_page_is_in_the_index() -> None:
    for name in PAGES:
        assert name == "README" or f"{name}.md)" in PAGES["README"]


def test_every_option_for_redis_is_on_the_first_page() -> None:
    for option in connection_options(hidden=False):
        for flag in option.opts:
            assert f"`{flag}" in PAGES["README"] or "_" in flag, flag


def test_every_json_has_a_definition() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    with_json = {
        " ".join(path) for path, command in leaves(main) if any("--json" in option.opts for option in command.params)
    }
    alone = ("stats", "doctor", "leave", "bench", "plan")
    kept = {name for name in SCHEMA["$defs"] if name in alone or " " in name}
    assert with_json == kept
    assert len(kept) >= 10
