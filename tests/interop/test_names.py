"""docs/coming-from-asynq.md leaves out no public name of the asynq that the peer is built with."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.build import HERE

pytestmark = pytest.mark.interop

PAGE = (HERE.parents[1] / "docs" / "coming-from-asynq.md").read_text()
PACKAGES = {"github.com/hibiken/asynq": 120, "github.com/hibiken/asynq/x/rate": 4}
RECORDS = ("Config", "SchedulerOpts", "PeriodicTaskConfig")
"""Types whose fields are names to look up; those of other records follow one rule."""
SAID_BY_RULE = {"String", "Type", "Value", "Set", "Error", "Debug", "Info", "Warn", "Fatal", "IsFailure"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_asynq_is_on_the_page(peer_binary: Path, package: str) -> None:
    command = ["go", "doc", "-all", package]
    told = subprocess.run(command, cwd=HERE / "peer", capture_output=True, text=True, check=True).stdout
    names = set(names_of(told))
    assert len(names) >= PACKAGES[package]
    words = set(re.findall(r"\w+", PAGE))
    assert sorted(name for name in names if name not in words and name not in SAID_BY_RULE) == []


def names_of(told: str) -> list[str]:
    """Return what ``go doc -all`` lists: functions, methods, types, variables, and the fields of some records."""
    found = re.findall(r"^func (?:\([^)]*\) )?([A-Z]\w*)", told, re.MULTILINE)
    found += re.findall(r"^type ([A-Z]\w*)", told, re.MULTILINE)
    found += re.findall(r"^(?:var|\t)\s*([A-Z]\w*)\s+=", told, re.MULTILINE)
    for record in RECORDS:
        body = re.search(rf"^type {record} struct {{$(.*?)^}}$", told, re.MULTILINE | re.DOTALL)
        found += re.findall(r"^\t([A-Z]\w*) ", body[1], re.MULTILINE) if body else []
    return found
