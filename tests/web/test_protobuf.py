"""Protobuf without its schema."""

from fastq.web.payloads import shown
from fastq.web.protobuf import protobuf_lines
from fastq.wire.proto.asynq_pb2 import TaskMessage as Message


def test_fields_are_shown_by_their_numbers() -> None:
    inner = Message(type="mail", retry=9007199254740993 % 2**31, headers={"k": "v"}, payload=b"\xff\x00")
    lines = protobuf_lines(inner.SerializeToString())
    assert lines is not None
    assert '1: "mail"' in lines
    assert "2: <ff 00>" in lines
    assert protobuf_lines(b"\x08\x81\x80\x80\x80\x80\x80\x80\x10") == ["1: 9007199254740993"]
    assert protobuf_lines(b"\x12\x02\x08\x07\x1d\x01\x00\x00\x00") == ["2 {", "  1: 7", "}", "3: 0x00000001"]


def test_other_bytes_are_no_protobuf() -> None:
    for data in (b"", b"\x00", b"\x08", b"\xff" * 20, b"\x0a\x7fshort", b"\x0b"):
        assert protobuf_lines(data) is None


def test_bytes_have_their_other_forms() -> None:
    part = shown(b'{"id":9007199254740993}')
    assert (part.kind, part.others) == ("JSON", ("raw", "hex", "base64"))
    raw = shown(b'{"id":9007199254740993}', "raw")
    assert (raw.kind, raw.html) == ("raw", "{&#34;id&#34;:9007199254740993}")
    assert shown(b"\x08\x07", "protobuf").html == "1: 7"
    assert shown(b"{}", "base64").html == "e30="
    assert shown(b"{}", "nonsense").kind == shown(b"{}", "protobuf").kind == "JSON"
