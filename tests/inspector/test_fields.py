"""The tables of what is told of records: each value of a record is there, or on a list of those told otherwise."""

from dataclasses import fields

from fastq.inspector import QueueInfo
from fastq.inspector.fields import QUEUE, faced


def test_the_table_of_queues_has_each_figure_once() -> None:
    assert sorted(each.name for each in QUEUE if each.key is not None) == sorted(
        each.name for each in fields(QueueInfo)
    )


def test_no_two_figures_have_one_place_or_one_metric() -> None:
    for face in ("facts", "stats", "dash", "web"):
        places = [place for place, _, _ in faced(QUEUE, face)]
        assert len(places) == len(set(places)), face
    metrics = [each.metric.name for each in QUEUE if each.metric is not None]
    assert len(metrics) == len(set(metrics)) > 5
