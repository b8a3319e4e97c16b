"""What handlers return: kept as far as it can be, and named in the log where it cannot."""

import array
import math

import orjson
import pytest

from fastq.common.encoding import UNENCODABLE
from fastq.log.limit import LINES, LogLimit
from fastq.worker.child import returned
from fastq.worker.child.returned import encode_returned
from tests.worker.harness import running


@pytest.fixture(autouse=True)
def fresh_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returned, "_limit", LogLimit[str]())


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (b"\x00", b"\x00"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"abcd")[::2], b"ac"),
        (memoryview(array.array("H", [1])), array.array("H", [1]).tobytes()),
        ({"a": None}, b'{"a":null}'),
    ],
)
def test_what_can_be_kept_is_kept_without_a_word(value: object, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert encode_returned(running()._message, value) == data
    assert caplog.records == []


def test_what_cannot_be_kept_is_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    data = encode_returned(
        running()._message, {"ok": 1, "rows": [{"when": {1, 2}}], "mean": math.nan, "more": [object()] * 9}
    )
    assert orjson.loads(data)["ok"] == 1
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "task id-1 (t, queue q) is done, but its result cannot be kept as it is: "
            "$.rows[0].when is of type set (a marker is kept), $.mean is nan (null is kept), "
            "$.more[0] is of type object (a marker is kept), $.more[1] is of type object (a marker is kept), "
            "$.more[2] is of type object (a marker is kept), and 6 more",
        )
    ]


@pytest.mark.parametrize("value", [b"x" * 11, "x" * 10])
def test_a_result_above_the_limit_becomes_a_marker(
    value: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returned, "MAX_RESULT_BYTES", 10)
    kept = orjson.loads(encode_returned(running()._message, value))
    assert kept[UNENCODABLE] == type(value).__name__
    assert "$ takes 1" in caplog.text
    assert "over the limit of 10" in caplog.text


def test_a_released_memoryview_becomes_a_marker(caplog: pytest.LogCaptureFixture) -> None:
    view = memoryview(b"x")
    view.release()
    assert orjson.loads(encode_returned(running()._message, view))[UNENCODABLE] == "memoryview"
    assert "$ cannot be read: " in caplog.text


def test_the_lines_of_a_type_are_limited_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    for _ in range(LINES + 3):
        encode_returned(running()._message, object())
    assert len(caplog.records) == LINES
    now_s[0] += 10.0
    encode_returned(running(type="other")._message, object())
    assert [record.getMessage()[:50] for record in caplog.records[LINES:]] == [
        "3 more results of t could not be kept as they were",
        "task id-1 (other, queue q) is done, but its result",
    ]
