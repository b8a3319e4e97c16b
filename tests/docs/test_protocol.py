"""The page about the protocol has every key, channel, field and message that there is."""

import inspect
import re
from datetime import UTC, date, datetime

import pytest

from fastq.wire import keys
from fastq.wire.proto import asynq_pb2
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "protocol.md").read_text()
NAMES = {
    "queue": "Q",
    "task_id": "ID",
    "host": "HOST",
    "pid": "PID",
    "server_id": "SERVER",
    "scheduler_id": "SCHEDULER",
    "entry_id": "ENTRY",
    "entry_name": "NAME",
    "due_s": "DUE",
    "group_name": "GROUP",
    "lane": "LANE",
    "pool": "POOL",
    "set_id": "SET",
    "scope": "SCOPE",
    "inbox": "INBOX",
    "fingerprint": "FINGERPRINT",
    "task_type": "TYPE",
    "payload": b"",
    "unique_key": "",
    "day": date(2026, 11, 22),
    "hour": datetime(2026, 11, 22, 6, tzinfo=UTC),
    "key": "asynq:{Q}:pending",
    "info_key": "asynq:servers:{HOST:PID:SERVER}",
}


@pytest.mark.parametrize("name", [name for name in keys.__all__ if name != "OWN_ASIDE"])
def test_every_key_is_there(name: str) -> None:
    found = getattr(keys, name)
    key = found if isinstance(found, str) else found(*(NAMES[one] for one in inspect.signature(found).parameters))
    shown = re.sub("2026-11-22", "DAY", re.sub("T06$", "THOUR", re.sub("d41d8cd98f00b204e9800998ecf8427e", "MD5", key)))
    assert f"`{shown}" in PAGE if name.endswith("_prefix") else f"`{shown}`" in PAGE


def test_the_fields_of_a_task_message_are_those_of_the_codec() -> None:
    fields = {field.name: field.number for field in asynq_pb2.TaskMessage.DESCRIPTOR.fields}
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) \| (?:string|bytes|int32|int64|map<string, string>) \|", PAGE, re.MULTILINE
    )
    assert {name: int(number) for name, number in rows} == fields


@pytest.mark.parametrize("name", ["ServerInfo", "WorkerInfo", "SchedulerEntry", "SchedulerEnqueueEvent"])
def test_the_fields_of_other_messages_are_those_of_the_codec(name: str) -> None:
    fields = [(field.name, str(field.number)) for field in asynq_pb2.DESCRIPTOR.message_types_by_name[name].fields]
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)` (\d+)", row) == fields
