"""The files of the page about deployment are well-formed, and the commands in them are taken."""

import functools
import json
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import kubernetes_validate  # type: ignore[import-untyped]  # has no types
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
    (plain,) = [
        yaml.safe_load(block.code) for block in BLOCKS if block.language == "yaml" and "metrics-l" in block.code
    ]
    for deployment in (plain, *charted()):
        (container,) = containers(deployment)
        (port,) = container["ports"]
        assert container["args"][container["args"].index("--metrics-listen") + 1] == f"0.0.0.0:{port['containerPort']}"
        probes = [probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")]
        assert [probe["port"] for probe in probes] == [port["name"]] * 3
        assert {probe["path"] for probe in probes} == {"/healthz", "/readyz"}


def charted() -> list[dict[str, Any]]:
    """Return the Deployments of the chart with the values of the page."""
    (values,) = [yaml.safe_load(block.code) for block in BLOCKS if block.code.startswith("# values.yaml")]
    (template,) = [block.code for block in BLOCKS if block.language == "helm"]
    head, body = re.fullmatch(
        r"(.*?)\n\{\{- range \$name, \$worker := \.Values\.workers \}\}(.*)\n\{\{- end \}\}\n", template, re.DOTALL
    ).groups()  # type: ignore[union-attr]  # or it fails
    release = {"Values": values, "Release": {"Name": "shop"}}
    rendered = head
    for name, one in values["workers"].items():
        scope = {"": release, "name": name, "worker": one}
        rendered += re.sub(r"(\s*)\{\{(-?) (.*?) \}\}", functools.partial(filled, scope), body)
    return list(yaml.safe_load_all(rendered))


def filled(scope: dict[str, Any], at: re.Match[str]) -> str:
    """Return what Helm puts in place of an expression: a path, and the few functions that the page uses."""
    space, trim, expression = at.groups()
    path = re.search(r"\$(\w*)([.\w]*)", expression)
    assert path is not None
    value = scope[path[1]]
    for name in path[2].split(".")[1:]:
        value = value[name]
    match re.sub(r"\$[.\w]+", "$", expression).split():
        case ["$"]:
            text = str(value)
        case ["$", "|", "quote"] | ["toJson", "$"]:
            text = json.dumps(value if expression.startswith("toJson") else str(value))
        case ["add", "$", number]:
            text = str(value + int(number))
        case ["toYaml", "$", "|", "nindent", columns]:
            text = "\n" + textwrap.indent(yaml.safe_dump(value).rstrip(), " " * int(columns))
        case _:
            raise AssertionError(expression)
    return text if trim else space + text


def test_the_chart_makes_a_deployment_of_each_group_of_workers() -> None:
    found = charted()
    assert [each["metadata"]["name"] for each in found] == ["shop-worker-default", "shop-worker-critical"]
    for deployment in found:
        assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
        (container,) = containers(deployment)
        program, *words = container["args"]
        take(PROGRAMS[program], list(words))
        given = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert given - int(words[words.index("--shutdown-timeout") + 1]) == 10
        assert container["env"][0]["valueFrom"] == {"secretKeyRef": {"name": "redis", "key": "url"}}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def refusal(resource: Any) -> str:
    """Return why Kubernetes would not take a resource, keys that it does not know included; "" if it would."""
    try:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error.message)
    return ""


def test_kubernetes_takes_the_files_and_would_not_take_a_wrong_key() -> None:
    blocks = [*BLOCKS, *blocks_of(ROOT / "docs" / "long-tasks.md")]
    files = [
        yaml.safe_load(block.code) for block in blocks if block.code.count("apiVersion: ") and "{{" not in block.code
    ]
    assert [found["kind"] for found in files] == ["Deployment", "Deployment", "PodDisruptionBudget", "Job"]
    resources = [*files, *charted()]
    assert [refusal(resource) for resource in resources] == [""] * len(resources)
    for deployment in (files[0], *charted()):
        containers(deployment)[0]["livenessProbe"]["timeout"] = 5
        assert "'timeout' was unexpected" in refusal(deployment)


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
