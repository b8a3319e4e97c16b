"""The table of claims has README's own words, and commands that there are."""

import re

import pytest

from fastq.cli.main import main
from tests.cli.commands import commands_of
from tests.docs.blocks import ROOT

README = (ROOT / "README.md").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in (ROOT / "docs" / "claims.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| section")
]


def plain(text: str) -> str:
    """Return the words of a text, without links, emphasis and the ends of lines."""
    return " ".join(re.sub(r"\[([^][]*)\]\([^()]*\)", r"\1", text).replace("*", "").split())


PROSE = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
_, *_PARTS = re.split(r"^##? (.*)$", PROSE, flags=re.MULTILINE)
SECTIONS = {title: plain(text) for title, text in zip(_PARTS[::2], _PARTS[1::2], strict=True)}


def missing(command: str) -> str:
    """Say what there is not of a command; "" if all of it is there."""
    if command.startswith("make "):
        return "" if command.removeprefix("make ") in TARGETS else "no such target"
    if command.startswith("fastq "):
        return "" if command.split()[1] in commands_of(main) else "no such command"
    path, _, test = command.partition("::")
    if not (ROOT / path).is_file():
        return "no such file"
    return "" if not test or f"def {test}(" in (ROOT / path).read_text() else "no such test"


@pytest.mark.parametrize(("section", "claim", "shown"), ROWS)
def test_a_claim_is_readmes_and_has_a_command(section: str, claim: str, shown: str) -> None:
    assert plain(claim) in SECTIONS[section]
    commands = re.findall(r"`(.*?)`", shown)
    assert commands
    assert {command: missing(command) for command in commands} == dict.fromkeys(commands, "")


def test_every_section_has_a_claim() -> None:
    assert {section for section, *_ in ROWS} == set(SECTIONS)


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("make nothing", "no such target"),
        ("fastq nothing", "no such command"),
        ("tests/test_nothing.py", "no such file"),
        ("tests/docs/test_claims.py::test_nothing", "no such test"),
        ("tests/docs/test_claims.py::test_every_section_has_a_claim", ""),
        ("benchmarks/bench_limits.py", ""),
    ],
)
def test_a_command_that_there_is_not_is_seen(command: str, what: str) -> None:
    assert missing(command) == what
