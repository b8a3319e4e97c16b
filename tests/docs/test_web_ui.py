"""docs/web-ui.md names all of asynqmon's flags and endpoints, and what is said of them is so."""

import re
from itertools import product
from typing import Any, Final

import pytest
from click.testing import CliRunner

from fastq.cli import web
from fastq.cli.main import main
from fastq.web.compat import ROUTES as API
from fastq.web.v1 import ROOT as V1_ROOT
from fastq.web.v1 import V1
from tests.docs.blocks import ROOT

PAGE: Final = (ROOT / "docs" / "web-ui.md").read_text()
VALUES: Final = {
    "--port": "8123",
    "--redis-addr": "redis.example:7",
    "--redis-db": "7",
    "--redis-password": "secret",
    "--redis-tls": "redis.example",
    "--redis-url": "redis://:x@redis.example:7/1",
    "--redis-cluster-nodes": "a.example:7,b.example:7",
    "--max-payload-length": "7",
    "--max-result-length": "7",
    "--prometheus-addr": "http://prometheus.example",
}
"""Of the flags that take one."""


def table_under(heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading."""
    text = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


FLAGS: Final = {
    flag.strip("`"): (variable.strip("`"), ours, VALUES.get(flag.strip("`"), ""))
    for flag, variable, ours in table_under("Flag by flag")
}
"""asynqmon's flags: the variable of each, what is said of it, and a value for it."""


@pytest.mark.parametrize("flag", FLAGS)
def test_each_flag_and_variable_of_asynqmon_does_what_ours_does(
    flag: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    taken: list[tuple[str, dict[str, Any]]] = []

    def take(_: object, url: str, given: dict[str, Any]) -> None:
        taken.append((url, dict(given)))
        raise ValueError("enough")

    monkeypatch.setattr(web, "_app", take)

    def given(*words: str, **variables: str) -> tuple[str, dict[str, Any]]:
        result = CliRunner().invoke(main, ["web", *words], env=variables)
        assert "enough" in result.stderr, result.stderr
        return taken.pop()

    variable, said, value = FLAGS[flag]
    as_ours = re.search("as `(--[a-z-]+)`", said)
    words = [value] if value else []
    wanted = given(as_ours[1] if as_ours else flag, *words)
    assert given() != wanted
    assert given(flag, *words) == wanted
    assert given(**{variable: value or "true"}) == wanted


def expanded(cell: str) -> set[tuple[str, str]]:
    """Return the methods and paths that a cell names."""
    found = set()
    for method, given in re.findall(r"`([A-Z]+) ([^`]*)`", cell):
        path = re.sub(r"^G", "Q/groups/{group}", given.partition("?")[0])
        parts = re.split(r"\{(\w+(?:,\w+)+)\}", re.sub(r"^Q", "/queues/{queue}", path))
        choices = [part.split(",") if at % 2 else [part] for at, part in enumerate(parts)]
        found |= {(method, "".join(chosen)) for chosen in product(*choices)}
    return found


def test_each_endpoint_is_in_the_table_and_there_are_no_others() -> None:
    rows = table_under("Endpoint by endpoint")
    theirs = [expanded(row[0]) for row in rows]
    named = set().union(*theirs)
    assert named == {(route.method, route.pattern.removeprefix("/api")) for route in API}
    assert sum(map(len, theirs)) == len(named) == 65  # each in one row
    ours = set().union(*(expanded(row[1]) for row in rows))
    of_v1 = {(route.method, route.pattern.removeprefix(V1_ROOT)) for route in V1}
    assert ours == {each for each in of_v1 if each[1] not in ("", "/openapi.json")}
