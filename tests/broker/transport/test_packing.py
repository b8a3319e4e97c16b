"""Commands as bytes: the same as hiredis makes, and what is no word is refused."""

from enum import StrEnum
from typing import Any, cast

import pytest
from hiredis import pack_command as packed_by_hiredis

from fastq.broker.transport.packing import pack_command


class Name(StrEnum):
    KEY = "asynq:{q}:pending"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("PING",),
        ("EVALSHA", "ab" * 20, 1, "asynq:{q}:pending", b"\x00\xff\r\n", b"", ""),
        ("SET", "größe", "日本"),
        ("SET", Name.KEY, 1.5, 1e300, float("inf"), -0.0),
        ("SET", *(b"x" * size for size in (9, 10, 99, 100, 999, 1000, 70_000))),
        tuple(["SET"] * 1000),
        (0, 7, 9, 10, 99, 100, -1, -10, 2**31, 2**63 - 1, -(2**63)),
    ],
)
def test_a_command_is_packed_as_by_hiredis(words: tuple[Any, ...]) -> None:
    assert pack_command(words) == packed_by_hiredis(words)


def test_a_number_may_have_more_than_64_bits() -> None:
    assert pack_command((2**64, -(2**64))) == b"*2\r\n$20\r\n18446744073709551616\r\n$21\r\n-18446744073709551616\r\n"


@pytest.mark.parametrize("word", [None, bytearray(b"x"), memoryview(b"x"), ("x",)])
def test_what_is_no_word_is_refused(word: object) -> None:
    with pytest.raises(TypeError, match=f"must be str, bytes, int or float, not {type(word).__name__}"):
        pack_command(("SET", cast("Any", word)))


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        pack_command(("SET", "\ud800"))
