"""What actors need they get in their constructors: who forgets one has no server, instead of an unsafe one."""

import ast
import inspect
from pathlib import Path

import pytest

import fastq.server.process
from fastq.server.actors.acker import Acker
from fastq.server.actors.custodian import Custodian
from fastq.server.actors.fetcher import Fetcher
from fastq.server.actors.heartbeater import Heartbeater
from fastq.server.actors.recoverer import Recoverer, Rules
from fastq.server.actors.syncer import Syncer
from fastq.server.inflight.ack_writer import AckWriter
from fastq.server.inflight.uncertain import UncertainDequeues

WIRED = (Acker, AckWriter, Custodian, Fetcher, Heartbeater, Recoverer, Rules, Syncer, UncertainDequeues)
BY_CONSTRUCTOR = {
    f"self.{name}" for name in ("acker", "ack_writer", "custodian", "heartbeater", "in_flight", "recoverer", "syncer")
}


@pytest.mark.parametrize("wired", WIRED)
def test_forgetting_what_a_part_needs_is_an_error(wired: type) -> None:
    parameters = inspect.signature(wired).parameters.values()
    assert parameters
    assert [one.name for one in parameters if one.default is not inspect.Parameter.empty] == []


def test_nothing_is_set_on_these_parts_after_they_were_made() -> None:
    tree = ast.parse(Path(fastq.server.process.__file__).read_text())
    targets = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Attribute)
    ]
    late = [ast.unparse(target) for target in targets if ast.unparse(target.value) in BY_CONSTRUCTOR]
    assert late == []
