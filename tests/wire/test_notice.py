"""What a server tells of itself: written and read back, bounded, and refused where it is something else."""

from datetime import UTC, datetime

import orjson
import pytest

from fastq.errors import InvalidMessageError
from fastq.wire.messages import ChildInfo
from fastq.wire.notice import MAX_CHILDREN_BYTES, MAX_NAME_BYTES, ServerNotice


def test_a_notice_is_read_as_it_was_written() -> None:
    notice = ServerNotice("1.2", ("critical", "ü"), ("email:", 'with "quotes"'))
    assert ServerNotice.decode(notice.encode()) == notice
    assert orjson.loads(notice.encode()) == {
        "format": 1,
        "version": "1.2",
        "data_format": 1,
        "queues": ["critical", "ü"],
        "patterns": ["email:", 'with "quotes"'],
        "left_out": 0,
        "children": [],
        "places": [],
    }


@pytest.mark.parametrize("name", ["pattern:%d", '"%d\n' * 20, "ü%d" * 300])
def test_names_that_do_not_fit_are_counted_and_left_out(name: str) -> None:
    patterns = tuple(name.replace("%d", str(number)) for number in range(10_000))
    encoded = ServerNotice("1", ("q",), patterns).encode()
    assert MAX_NAME_BYTES * 0.9 < len(encoded) < MAX_NAME_BYTES + 200
    found = ServerNotice.decode(encoded)
    assert found.patterns == patterns[: len(found.patterns)]
    assert found.left_out == len(patterns) - len(found.patterns) > 0


def test_queues_that_do_not_fit_are_counted_and_left_out() -> None:
    queues = tuple("q" * 1000 + str(number) for number in range(100))
    found = ServerNotice.decode(ServerNotice("1", queues, ("a", "b")).encode())
    assert 0 < len(found.queues) < 100
    assert found.patterns == ()
    assert found.left_out == 102 - len(found.queues)


def test_fields_of_later_versions_are_passed_over() -> None:
    data = orjson.dumps({**orjson.loads(ServerNotice("1", ("q",), ("a",)).encode()), "moods": [1]})
    assert ServerNotice.decode(data) == ServerNotice("1", ("q",), ("a",))


def test_children_are_told_as_far_as_there_is_room() -> None:
    since = datetime(2026, 11, 22, 17, tzinfo=UTC)
    one, other = ChildInfo(7, "busy", since, 50_000_000, ("a", "ü")), ChildInfo(8, "idle", since)
    notice = ServerNotice("1", ("q",), ("a",), children=(one, other))
    assert ServerNotice.decode(notice.encode()) == notice
    many = ServerNotice("1", ("q",), (), children=(ChildInfo(1, "busy", since, 0, ("x" * 1000,) * 100), other) * 1000)
    assert len(many.encode()) < MAX_CHILDREN_BYTES * 1.1 + 200
    found = ServerNotice.decode(many.encode()).children
    assert 0 < len(found[0].task_ids) < 100
    assert found[1] == other


def test_the_form_of_the_data_is_told_and_that_of_servers_that_do_not_tell_it_is_the_first() -> None:
    notice = ServerNotice("2", ("q",), ("a",), data_format=3)
    assert ServerNotice.decode(notice.encode()).data_format == 3
    fields = orjson.loads(notice.encode())
    del fields["data_format"]
    assert ServerNotice.decode(orjson.dumps(fields)).data_format == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"{}",
        b'{"format":2,"version":"1","queues":[],"patterns":[],"left_out":0}',
        b'{"format":1,"version":"1","queues":"q","patterns":[],"left_out":0}',
        b'{"format":1,"version":"1","queues":[],"patterns":[1],"left_out":0}',
        b'{"format":1,"version":"1","queues":[],"patterns":[""],"left_out":0}',
        b'{"format":1,"version":"1","queues":[],"patterns":[],"left_out":"x"}',
        b'{"format":1,"version":"1","queues":[],"patterns":[],"left_out":0,"children":[1]}',
        b'{"format":1,"version":"1","queues":[],"patterns":[],"left_out":0,"children":[{"pid":1}]}',
    ],
)
def test_what_is_no_notice_of_this_format_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessageError, match="notice"):
        ServerNotice.decode(data)
