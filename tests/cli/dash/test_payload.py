"""Bytes set for people to read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.cli.dash.payload import MOST_SHOWN, shown_lines
from fastq.text.human import size

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"plain", ["plain"]),
        (b"two\nlines\r\n", ["two", "lines"]),
        (b"a\tb", ["a       b"]),
        ("строка\x1b[31m\u202e".encode(), [r"строка\x1b[31m\u202e"]),
        (b"{}", ["{}"]),
        (b"[]", ["[]"]),
        (b'{"a":{},"b":[]}', ["{", '  "a": {},', '  "b": []', "}"]),
        (b'{"n":1.50e400,"n":007}', ['{"n":1.50e400,"n":007}']),  # not JSON
        (b'{"n":1.50e3,"n":12345678901234567890}', ["{", '  "n": 1.50e3,', '  "n": 12345678901234567890', "}"]),
        (b'[ [1 , 2], "a,b:{" ]', ["[", "  [", "    1,", "    2", "  ],", '  "a,b:{"', "]"]),
        (b'"text"', ['"text"']),
        (b'{"broken', ['{"broken']),
        (b"\xff\x00A", ["00000000  ff 00 41" + " " * 41 + "..A"]),
        (b"nul\0", ["00000000  6e 75 6c 00" + " " * 38 + "nul."]),
        (bytes(range(65, 82)), ["ABCDEFGHIJKLMNOPQ"]),
    ],
)
def test_bytes_are_written_as_what_they_are(data: bytes, lines: list[str]) -> None:
    assert shown_lines(data) == lines


def test_rows_of_a_dump_fit_a_small_terminal() -> None:
    lines = shown_lines(bytes(range(256)))
    assert len(lines) == 16
    assert {len(line) for line in lines} == {75}


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON))
def test_json_set_on_lines_is_the_same_json(value: object) -> None:
    text = json.dumps(value)
    lines = shown_lines(text.encode())
    assert json.loads("\n".join(lines)) == value
    assert lines == json.dumps(value, indent=2).split("\n")


@given(st.binary(max_size=300))
def test_nothing_upsets_a_terminal(data: bytes) -> None:
    assert all(line.isprintable() for line in shown_lines(data))


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 3_000_000,
        json.dumps(["y" * 10] * 50_000).encode(),
        json.dumps(["y" * 10] * 500_000).encode(),
        bytes(100_000),
        "ж".encode() * 800_000,
        b"[" * 400_000 + b"]" * 400_000,
    ],
    ids=["text", "json", "much json", "bytes", "letters of two bytes", "deep"],
)
def test_of_much_the_beginning_is_shown(data: bytes) -> None:
    *lines, last = shown_lines(data)
    assert last.startswith(("… the first 64.0 kB of ", "… the first 65,536 characters as shown here, of "))
    if data[0]:
        assert MOST_SHOWN / 3 < sum(map(len, lines)) <= MOST_SHOWN
    else:
        assert len(lines) == MOST_SHOWN / 16


@pytest.mark.parametrize(
    "data",
    [json.dumps(list(range(10_000))).encode(), b"[" * 900 + b"]" * 900, b"\x01" * 30_000],
    ids=["many lines", "deep", "control characters"],
)
def test_what_grows_when_it_is_set_is_not_cut_silently(data: bytes) -> None:
    *lines, last = shown_lines(data)
    assert len(data) < MOST_SHOWN
    assert sum(map(len, lines)) == MOST_SHOWN
    assert last == f"… the first 65,536 characters as shown here, of {size(len(data))} in all"


def test_what_just_fits_has_no_note() -> None:
    assert shown_lines(b"x" * MOST_SHOWN) == ["x" * MOST_SHOWN]
    assert shown_lines(b"x" * (MOST_SHOWN - 1) + b"\ny\n")[-1] == "y"
