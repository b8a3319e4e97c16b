"""What actors need they get in their constructors: who forgets one has no server, instead of an unsafe one."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastq.server.wiring.process
from fastq.server.actors.actor import Actor
from fastq.server.actors.aggregation import Aggregation
from fastq.server.actors.lost_tasks import LostTaskRules
from fastq.server.actors.reclaimer import Reclaimer
from fastq.server.inflight.ack_writer import AckWriter
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.processor import Processor
from fastq.server.inflight.uncertain import UncertainDequeues

SERVER = Path(fastq.server.wiring.process.__file__).parent


def kinds_of(actor: type[Actor]) -> Iterator[type[Actor]]:
    yield actor
    for one in actor.__subclasses__():
        if one.__module__.startswith("fastq.server"):
            yield from kinds_of(one)


ACTORS = list(kinds_of(Actor))
WIRED = (*ACTORS, AckWriter, Aggregation, InFlight, Processor, Reclaimer, LostTaskRules, UncertainDequeues)


def targets_of(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield every attribute that is assigned to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


def is_own(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id == "self"


def attributes_of_actors() -> set[str]:
    sources = [Path(inspect.getfile(one)) for one in ACTORS]
    trees = [node for source in sources for node in ast.parse(source.read_text()).body]
    names = {one.__name__ for one in ACTORS}
    classes = [node for node in trees if isinstance(node, ast.ClassDef) and node.name in names]
    return {target.attr for node in classes for target in targets_of(node) if is_own(target)}


def set_from_outside(source: str) -> list[str]:
    """Return the assignments of some source to attributes that actors have, on anything but ``self``."""
    names = attributes_of_actors()
    return [
        f"{target.lineno}: {ast.unparse(target)}"
        for target in targets_of(ast.parse(source))
        if target.attr in names and not is_own(target)
    ]


@pytest.mark.parametrize("wired", WIRED)
def test_forgetting_what_a_part_needs_is_an_error(wired: type) -> None:
    parameters = inspect.signature(wired).parameters.values()
    assert parameters
    assert [one.name for one in parameters if one.default is not inspect.Parameter.empty] == []


def test_nothing_sets_an_attribute_of_an_actor_but_the_actor() -> None:
    found = {
        str(path.relative_to(SERVER)): late
        for path in sorted(SERVER.rglob("*.py"))
        if (late := set_from_outside(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    "late",
    ["actor.outage = outage", "self.fetcher._wakers = {}", "self.wakers[queue]._servers = servers", "a.ticks += 1"],
)
def test_an_attribute_that_is_set_late_is_found(late: str) -> None:
    assert set_from_outside(late) == [f"1: {late.split(' ')[0]}"]
