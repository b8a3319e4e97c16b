"""The tables of what is told of records: each value of a record is there, and none in the place of another."""

from dataclasses import fields
from typing import Any

import pytest

from fastq import TaskInfo
from fastq.inspector import QueueInfo, TaskLocks
from fastq.inspector.fields import LOCKS, QUEUE, TASK, Field, faced


@pytest.mark.parametrize(("table", "record"), [(QUEUE, QueueInfo), (TASK, TaskInfo), (LOCKS, TaskLocks)])
def test_a_table_has_each_value_of_its_record_once(table: tuple[Field, ...], record: Any) -> None:
    told = {each.name for each in fields(record)} - {"key_outcome"}  # what enqueuing alone can tell
    assert sorted(each.name for each in table if each.key is not None) == sorted(told)


@pytest.mark.parametrize("table", [QUEUE, TASK, LOCKS])
def test_no_two_values_have_one_place_or_one_metric(table: tuple[Field, ...]) -> None:
    for face in ("facts", "stats", "dash", "web", "admin"):
        places = [place for place, _, _ in faced(table, face)]
        assert len(places) == len(set(places)), face
    metrics = [each.metric.name for each in table if each.metric is not None]
    assert len(metrics) == len(set(metrics))
