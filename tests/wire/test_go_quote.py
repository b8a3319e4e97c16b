import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.wire.go_quote import quote, unquote

TEXTS = st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))


# The right-hand sides are what strconv.Quote of Go 1.26 returned.
@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x1f\x7f", r'"\x00\x1f\x7f"'),
        ("a`b'c", '"a`b\'c"'),
        ("\u00a0\u200b\ufeff\u2028", r'"\u00a0\u200b\ufeff\u2028"'),
        ("\u0085\u00ad", r'"\u0085\u00ad"'),
        ("\ue000\U000e0001\U0010ffff", r'"\ue000\U000e0001\U0010ffff"'),
        ("\u00e9\u2713\U0001f600\u0301 x", '"\u00e9\u2713\U0001f600\u0301 x"'),
        ("a\udcffb\udc80", r'"a\xffb\x80"'),
    ],
)
def test_strings_are_quoted_as_go_quotes_them(text: str, quoted: str) -> None:
    assert quote(text) == quoted
    assert unquote(quoted) == text


@given(TEXTS)
def test_every_string_survives_quoting(text: str) -> None:
    assert unquote(quote(text)) == text


@pytest.mark.parametrize(
    ("quoted", "text"),
    [
        ('`raw \\n \r"x"`', 'raw \\n "x"'),
        ("'x'", "x"),
        (r"'\''", "'"),
        (r"'\u00e9'", "\u00e9"),
        (r'"\101\x41\u0041\U00000041"', "AAAA"),
        (r'"\xe2\x9c\x93"', "\u2713"),
        ('"it\'s"', "it's"),
    ],
)
def test_every_form_of_literal_that_go_reads_is_read(quoted: str, text: str) -> None:
    assert unquote(quoted) == text


@pytest.mark.parametrize(
    "quoted",
    [
        *("", "x", '"', '"x', 'x"', '"a"b"', "`a`b`", "'ab'", "''", ' "x"', "'x\"", '"a\nb"', '"\\', '"\\"'),
        *(r'"\'"', r"'\"'", r'"\q"', r'"\x4"', r'"\ud800"', r'"\U00110000"', r'"\400"', r'"\7"'),
    ],
)
def test_what_is_no_literal_is_refused(quoted: str) -> None:
    with pytest.raises(ValueError, match=r"quoted|misplaced|no character|one character|backquote"):
        unquote(quoted)
