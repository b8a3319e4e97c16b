"""Messages to inboxes: what one says is read, and what is not one is refused as a whole."""

import pytest

from fastq.wire.codec import TaskMessage, encode_task_message
from fastq.wire.inbox import ERRORS, EndKind, TaskEnd, encode_ends, mark_of, read_ends_message


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
    for submit in ("", "aB3_-"):
        message = encode_ends("low", [(task_id, end, submit) for task_id, end in ends])
        assert read_ends_message(message) == [
            (("low", "a", submit), TaskEnd(EndKind.DONE, is_whole=True)),
            (("low", "b", submit), TaskEnd(EndKind.RESULT)),
            (("low", "long", submit), TaskEnd(EndKind.RESULT)),
            (("low", "binary", submit), TaskEnd(EndKind.RESULT)),
            (("low", "text", submit), TaskEnd(EndKind.RESULT, result=b'"\0\xc3\xa9"', is_whole=True)),
            (("low", "empty", submit), TaskEnd(EndKind.RESULT, result=b"", is_whole=True)),
            (("low", "c", submit), TaskEnd(EndKind.FAILED, "ValueError: no")),
            (("low", "d", submit), TaskEnd(EndKind.GONE, is_whole=True)),
        ]
    later = b'{"queue":"q","ended":[["a","later"],["b","failed","no","nonce","more"]],"more":1}'
    assert read_ends_message(later) == [(("q", "b", "nonce"), TaskEnd(EndKind.FAILED, "no"))]
    assert read_ends_message(encode_ends("", ())) == []


def test_each_end_has_a_result_or_an_error() -> None:
    assert set(EndKind) - {EndKind.DONE, EndKind.RESULT} == set(ERRORS)


def test_the_mark_of_a_submit_is_in_the_messages_of_its_tasks_alone() -> None:
    headers = {"a": "b", "fastq-submit": "aB3_-", "z": "y"}
    message = encode_task_message(TaskMessage(type="t", id="1", queue="q", headers=headers))
    assert mark_of("aB3_-") in message
    assert mark_of("aB3_") not in message
    assert mark_of("") == b""


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
        b'{"queue":"q","ended":[["b","done"],["a",null]]}',
        b'{"queue":"q","ended":[["b","done",null,null]]}',
    ],
)
def test_what_is_not_such_a_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="is not") as error:
        read_ends_message(data)
    assert len(str(error.value)) < 400
