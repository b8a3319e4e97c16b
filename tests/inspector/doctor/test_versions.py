"""What the doctor says of servers that write data in different forms."""

import time
from typing import Any

from redis import Redis

from fastq import Inspector
from fastq.inspector.doctor.finding import Level
from fastq.wire import keys
from fastq.wire.messages import ServerInfoMessage
from fastq.wire.notice import ServerNotice
from fastq.wire.records import encode_server_info


def serve(db: Any, version: str, data_format: int) -> None:
    """Let a server of a version live."""
    key = keys.server_info("h", 7, version)
    info = ServerInfoMessage("h", 7, version, 1, {"default": 1}, False, "active", None, 0)
    notice = ServerNotice(version, ("default",), ("t",), data_format=data_format)
    db.set(key, encode_server_info(info), ex=600)
    db.set(keys.server_notice(key), notice.encode())
    db.zadd(keys.all_servers(), {key: int(time.time()) + 600})


def said(url: str) -> tuple[Level, str]:
    with Inspector(url) as inspector:
        (found,) = [finding for finding in inspector.examine().findings if finding.check == "data formats"]
    return found.level, found.seen


def test_servers_one_format_apart_are_in_order_and_others_a_problem(db: Redis, url: str) -> None:
    assert said(url) == (Level.OK, "no server tells one")
    serve(db, "0.1", 1)
    assert said(url) == (Level.OK, "1 (fastq 0.1)")
    serve(db, "0.2", 2)
    assert said(url) == (Level.OK, "1 (fastq 0.1), 2 (fastq 0.2)")
    serve(db, "0.3", 3)
    assert said(url) == (Level.PROBLEM, "1 (fastq 0.1), 2 (fastq 0.2), 3 (fastq 0.3); 1 here")
