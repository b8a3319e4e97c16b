"""Where upb, which the ``protobuf`` package runs on, is no oracle: Go decides, and each case was tried against it."""

import google.protobuf
import pytest

from fastq.wire.codec import TaskMessage, decode_task_message
from tests.fuzz import go_rules
from tests.fuzz.fuzz_codec import attempt, from_upb
from tests.fuzz.inputs import nested_groups, span, tag, varint

REFUSED = None
of_upb_7 = pytest.mark.skipif(google.protobuf.__version__ < "7", reason="upb of protobuf 6 does as Go does")


def check_difference(data: bytes, *, rule: str, upb: TaskMessage | None, go: TaskMessage | None) -> None:
    assert from_upb(data) == upb
    assert attempt(decode_task_message, data)[0] == go
    by_go, rules = go_rules.plain(data)
    assert rule in rules
    assert (None if by_go is None else from_upb(by_go)) == go


def test_upb_refuses_a_tag_of_six_bytes_that_go_reads() -> None:
    check_difference(tag(1, 2, width=6) + b"\x01t", rule=go_rules.LONG_TAG, upb=REFUSED, go=TaskMessage(type="t"))


@of_upb_7
def test_upb_refuses_a_length_of_six_bytes_that_go_reads() -> None:
    check_difference(
        tag(1, 2) + varint(1, width=6) + b"t", rule=go_rules.LONG_SIZE, upb=REFUSED, go=TaskMessage(type="t")
    )


def test_upb_drops_the_excess_of_a_tenth_byte_that_go_refuses() -> None:
    data = tag(9, 0) + b"\x81" + b"\x80" * 8 + b"\x02"
    check_difference(data, rule=go_rules.TENTH_BYTE, upb=TaskMessage(deadline=1), go=REFUSED)


@of_upb_7
def test_upb_takes_field_number_0_in_a_group_that_go_refuses() -> None:
    data = tag(20, 3) + b"\x00\x01" + tag(20, 4)
    check_difference(data, rule=go_rules.GROUP_NUMBERS, upb=TaskMessage(), go=REFUSED)


def test_upb_refuses_a_high_field_number_in_a_group_that_go_takes() -> None:
    data = tag(20, 3) + tag(2**31 - 1, 0) + b"\x01" + tag(20, 4)
    check_difference(data, rule=go_rules.GROUP_NUMBERS, upb=REFUSED, go=TaskMessage())


def test_upb_refuses_groups_nested_deeper_than_100_that_go_takes() -> None:
    assert from_upb(nested_groups(100)) == TaskMessage()
    check_difference(nested_groups(101), rule=go_rules.DEEP_GROUPS, upb=REFUSED, go=TaskMessage())


def test_upb_puts_a_header_with_an_unknown_field_aside_that_go_reads() -> None:
    data = span(15, span(1, b"k") + span(2, b"v") + tag(3, 0) + b"\x01")
    check_difference(data, rule=go_rules.ODD_ENTRY, upb=TaskMessage(), go=TaskMessage(headers={"k": "v"}))
