"""What the pages and workflows say about ``make`` is so, and a machine that cannot build is told what it lacks."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIND_PYTHON = ROOT / ".ci" / "find-python"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
APT_LINE = "apt-get install python3 python3-venv python3-dev gcc make redis-server"


@pytest.fixture(scope="module")
def listed() -> set[str]:
    done = subprocess.run(["make", "-C", str(ROOT), "--no-print-directory"], capture_output=True, text=True, check=True)
    return {line.split()[1] for line in done.stdout.splitlines()}


def find_python(*candidates: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(FIND_PYTHON), *candidates], capture_output=True, text=True)


def test_make_alone_lists_every_target(listed: set[str]) -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert listed == set(phony.split())


def test_contributing_explains_every_target(listed: set[str]) -> None:
    table = [line.split("|")[1] for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line.startswith("|")]
    assert set(re.findall(r"`make ([a-z-]+)`", "".join(table))) == listed - {"help"}


@pytest.mark.parametrize("page", [*WORKFLOWS, *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_nothing_names_a_target_that_is_not_there(page: Path, listed: set[str]) -> None:
    named = re.findall(r"(?:run: |`|^ {4})make ([a-z][a-z-]*)\b", page.read_text(), re.MULTILINE)
    assert set(named) - listed == set()


def test_every_group_of_packages_is_installed_by_a_target() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = set(re.findall(r"\$\(VENV\)/(\w+)\.group", (ROOT / "Makefile").read_text()))
    assert named - set(project["project"]["optional-dependencies"]) == set(project["dependency-groups"]) - {"build"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name)
def test_actions_are_pinned_by_commit(workflow: Path) -> None:
    used = re.findall(r"uses: (?!\./)(.*)", workflow.read_text())
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action)] == []


def test_an_old_python_is_refused_with_the_line_that_installs_a_new_one(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\ncase "$2" in *print*) echo 3.10 ;; *) exit 1 ;; esac\n')
    old.chmod(0o755)
    refused = find_python(str(old))
    assert refused.returncode == 1
    assert f"Python 3.11 or later is needed and was not found; {old} is 3.10" in refused.stderr
    assert APT_LINE in refused.stderr


def test_a_machine_without_python_is_told_so() -> None:
    refused = find_python("/no/such/python")
    assert refused.returncode == 1
    assert "there is no Python on PATH" in refused.stderr
    assert APT_LINE in refused.stderr


def test_a_python_that_cannot_make_environments_is_refused(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text('#!/bin/sh\ncase "$2" in *print*) echo 3.12 ;; *ensurepip*) exit 1 ;; esac\n')
    bare.chmod(0o755)
    refused = find_python(str(bare))
    assert "cannot make virtual environments" in refused.stderr
    assert APT_LINE in refused.stderr
