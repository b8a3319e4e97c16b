"""Messages to inboxes: what one says is read, and what is not one is refused as a whole."""

import pytest

from fastq.wire.inbox import EndKind, TaskEnd, encode_ends, read_ends_message


def test_the_ends_in_a_message_are_read() -> None:
    ends = [
        ("a", TaskEnd(EndKind.DONE)),
        ("b", TaskEnd(EndKind.RESULT)),
        ("long", TaskEnd(EndKind.RESULT, result=b"x" * 501)),
        ("binary", TaskEnd(EndKind.RESULT, result=b"\xff")),
        ("text", TaskEnd(EndKind.RESULT, result=b'"\0\xc3\xa9"')),
        ("empty", TaskEnd(EndKind.RESULT, result=b"")),
        ("c", TaskEnd(EndKind.FAILED, "ValueError: no")),
        ("d", TaskEnd(EndKind.GONE)),
    ]
    assert read_ends_message(encode_ends("low", ends)) == [
        (("low", "a"), TaskEnd(EndKind.DONE, is_whole=True)),
        (("low", "b"), TaskEnd(EndKind.RESULT)),
        (("low", "long"), TaskEnd(EndKind.RESULT)),
        (("low", "binary"), TaskEnd(EndKind.RESULT)),
        (("low", "text"), TaskEnd(EndKind.RESULT, result=b'"\0\xc3\xa9"', is_whole=True)),
        (("low", "empty"), TaskEnd(EndKind.RESULT, result=b"", is_whole=True)),
        (("low", "c"), TaskEnd(EndKind.FAILED, "ValueError: no")),
        (("low", "d"), TaskEnd(EndKind.GONE, is_whole=True)),
    ]
    later = b'{"queue":"q","ended":[["a","later"],["b","failed","no","more"]],"more":1}'
    assert read_ends_message(later) == [(("q", "b"), TaskEnd(EndKind.FAILED, "no"))]
    assert read_ends_message(encode_ends("", ())) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"x" * 1_000,
        b"[" * 100_000,
        b"null",
        b'"queue"',
        b"[]",
        b"{}",
        b'{"queue":[],"ended":[["a","done"]]}',
        b'{"queue":"q"}',
        b'{"queue":"q","ended":"ad"}',
        b'{"queue":"q","ended":{"a":"done"}}',
        b'{"queue":"q","ended":["ad"]}',
        b'{"queue":"q","ended":[{"a":1,"done":2}]}',
        b'{"queue":"q","ended":[["a"]]}',
        b'{"queue":"q","ended":[[["a"],"done"]]}',
        b'{"queue":"q","ended":[["a",["done"]]]}',
        b'{"queue":"q","ended":[["a","failed",7]]}',
        b'{"queue":"q","ended":[["b","done"],["a","failed",null]]}',
    ],
)
def test_what_is_not_such_a_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="is not") as error:
        read_ends_message(data)
    assert len(str(error.value)) < 400
