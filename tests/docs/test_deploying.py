"""The files of the page about deployment are well-formed, and the commands in them are taken."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from fastq.cli.main import main
from fastq.cli.worker import main as worker
from tests.docs.blocks import ROOT, Block, blocks_of
from tests.docs.test_blocks import take

BLOCKS = blocks_of(ROOT / "docs" / "deploying.md")
PROGRAMS: dict[str, click.Command] = {"fastq": main, "fastq-worker": worker}


def commands(block: Block) -> Iterator[Sequence[str]]:
    """Yield the commands that a file starts."""
    match block.language:
        case "dockerfile":
            yield from (json.loads(found) for found in re.findall(r"^CMD (.*)$", block.code, re.MULTILINE))
        case "ini":
            yield from (shlex.split(found) for found in re.findall(r"^ExecStart=(.*)$", block.code, re.MULTILINE))
        case "yaml":
            found = yaml.safe_load(block.code)
            for service in found.get("services", {}).values():
                yield shlex.split(service["command"])
            for container in containers(found):
                yield container["args"]


def containers(found: dict[str, Any]) -> list[dict[str, Any]]:
    return found["spec"]["template"]["spec"]["containers"] if found.get("kind") == "Deployment" else []


def test_the_commands_are_taken() -> None:
    found = [words for block in BLOCKS for words in commands(block)]
    ours = [(Path(words[0]).name, words[1:]) for words in found if "valkey" not in words[0]]
    assert len(ours) == 7
    for program, words in ours:
        take(PROGRAMS[program], list(words))


def test_a_worker_is_given_longer_than_it_gives_its_tasks() -> None:
    page = "\n".join(block.code for block in BLOCKS)
    given = re.findall(r"(?:stop_grace_period: |TimeoutStopSec=|terminationGracePeriodSeconds: )(\d+)", page)
    taken = re.findall(r"--shutdown-timeout,? (\d+)", page)
    assert len(given) == 3
    assert [int(one) - int(other) for one, other in zip(given, taken, strict=True)] == [10, 10, 10]


def test_probes_ask_the_port_that_listens() -> None:
    (deployment,) = [yaml.safe_load(block.code) for block in BLOCKS if "metrics-listen" in block.code]
    (container,) = containers(deployment)
    (port,) = container["ports"]
    assert container["args"][container["args"].index("--metrics-listen") + 1] == f"0.0.0.0:{port['containerPort']}"
    probes = [probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")]
    assert [probe["port"] for probe in probes] == [port["name"]] * 3
    assert {probe["path"] for probe in probes} == {"/healthz", "/readyz"}


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("there is no systemd-analyze on PATH")
    units = [block.code for block in BLOCKS if block.language == "ini" and "[Service]" in block.code]
    assert len(units) == 2
    for number, unit in enumerate(units):
        path = tmp_path / f"fastq-{number}.service"
        path.write_text(re.sub(r"/srv/app/\.venv/bin/[\w-]+", "/bin/true", unit))
        done = subprocess.run([verify, "verify", "--man=no", str(path)], capture_output=True, text=True)
        assert path.name not in done.stderr, done.stderr
