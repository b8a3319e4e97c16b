"""The records of failed attempts: always as long, whatever is in them."""

import pytest

from fastq.wire.attempts import AttemptRecord, decode_attempts, own_traceback, server_name

FIRST = AttemptRecord(1, 1_700_000_000_000, 1_700_000_000_250, "web-1:4711", "ValueError: no", "00ff" * 4)
LOST = AttemptRecord(2, 0, 1_700_000_009_000, "", "LeaseExpiredError: lost")


def test_records_come_back_in_their_order() -> None:
    assert decode_attempts(FIRST.encode() + LOST.encode()) == [FIRST, LOST]
    assert decode_attempts(b"") == []


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("E" * 95, "E" * 95),
        ("E" * 96, "E" * 92 + "…"),
        ("é" * 64_000, "é" * 46 + "…"),
        ("😀" * 30, "😀" * 23 + "…"),
        ("bad \udcff", "bad ?"),
        ("nul\0", "nul"),
    ],
)
def test_a_record_has_a_fixed_size_and_cuts_no_character(error: str, shown: str) -> None:
    data = FIRST._replace(error=error, attempt=2**32 + 3).encode()
    assert len(data) == 160
    assert decode_attempts(data) == [FIRST._replace(error=shown, attempt=3)]


@pytest.mark.parametrize("data", [b"x", FIRST.encode()[:-1], b"\xff" * 160, b"\x02" + FIRST.encode()[1:]])
def test_bytes_that_are_no_records_are_left_out(data: bytes) -> None:
    assert decode_attempts(data) == []


def test_a_long_name_of_a_server_keeps_its_end() -> None:
    assert server_name("web-1", 4711) == "web-1:4711"
    name = server_name("a-deployment-of-some-length-7d9f8b6c5d-x2x7k", 17)
    assert name.startswith("…")
    assert name.endswith("-7d9f8b6c5d-x2x7k:17")
    assert len(server_name("é" * 64, 1).encode()) <= 36
    record = FIRST._replace(server=name)
    assert decode_attempts(record.encode()) == [record]


@pytest.mark.parametrize(
    ("kept", "error", "own"),
    [
        ("frames\nValueError", "ValueError: order 5 (shop.py:3)", "frames\nValueError: order 5 (shop.py:3)"),
        ("frames\nshop.CardError", "CardError: no", "frames\nshop.CardError: no"),
        ("frames\nshop.pay.<locals>.CardError", "CardError", "frames\nshop.pay.<locals>.CardError"),
        ("ValueError", "ValueError: 5", "ValueError: 5"),
        ("frames\nValueError", "the text of another version", "frames\nValueError"),
    ],
)
def test_a_traceback_ends_with_the_attempts_own_error(kept: str, error: str, own: str) -> None:
    assert own_traceback(kept, error) == own
