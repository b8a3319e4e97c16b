"""Text as it may be shown."""

import pytest

from fastq.log.printable import clean


@pytest.mark.parametrize("text", ["", "mail:send", "größe 漢字 🙂", "a b"])
def test_what_can_be_shown_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\r\t\x00", "a\\nb\\r\\t\\x00"),
        ("\x1b[31m\x7f", "\\x1b[31m\\x7f"),
        ("\x9b\x85", "\\x9b\\x85"),
        ("\u202e\u2066", "\\u202e\\u2066"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\ud800\udcff", "\\ud800\\udcff"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(text: str, shown: str) -> None:
    assert clean(text) == shown
