"""The doctor on a real cluster: queues on three nodes, and keys on all of them."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fastq import keys
from fastq.broker.open import open_broker
from fastq.inspector.doctor.examination import Order, Report, examine
from fastq.inspector.doctor.finding import Level
from tests.inspector.doctor.harness import DEFECTS, sound
from tests.inspector.harness import Seeded
from tests.inspector.test_cluster import QUEUES, db, keys_node, nodes, url

__all__ = ["db", "nodes", "url"]


@pytest.fixture
def look(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("fastq.inspector.doctor.examination.SECOND_LOOK_S", 0.0)
    broker = open_broker(url)

    def examined(*, mend: bool = False) -> set[tuple[str, str | None]]:
        report: Report = broker.drive(examine(Order(time.time_ns)))
        for repair in report.repairs if mend else ():
            broker.drive(repair.carry_out())
        ours = [
            finding for finding in report.findings if finding.check not in ("persistence", "served", "slow commands")
        ]
        return {(finding.check, finding.queue) for finding in ours if finding.level is not Level.OK}

    yield examined
    broker.close()


def test_defects_on_each_node_are_seen_and_mended(look: Any, db: Any) -> None:
    names: Sequence[str] = ("ghosts in pending", "lost, retry", "leftover", "lock")
    for queue in QUEUES:
        sound(db, queue)
    assert look() == set()
    for queue in QUEUES:
        for name in names:
            DEFECTS[name].make(Seeded(db, queue))
    db.srem(keys.all_queues(), QUEUES[0])
    assert len({keys_node(db, queue) for queue in QUEUES}) == 3
    checks = {DEFECTS[name].check for name in names}
    expected = {(check, queue) for check in checks for queue in QUEUES} | {("unlisted queues", QUEUES[0])}
    assert look() == expected - {("ids without task", QUEUES[0])}, "it is walked once it is listed"
    for _ in range(2):
        look(mend=True)
    assert look() == set()
