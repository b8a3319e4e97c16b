"""The view of one task."""

import json
from typing import Any

from redis import Redis

from fastq import Client
from fastq.wire import keys
from tests.cli.commands import Fastq
from tests.cli.dash.driving import driven, on_a_loop
from tests.inspector.harness import Seeded


@on_a_loop
async def test_a_task_is_shown_with_payload_and_result(filled: Fastq, db: Any) -> None:
    db.hset(keys.task("default", "c1"), "result", b'{"sum":3.140,"of":[1,2],"none":{}}')
    async with driven(filled.url, queue="default") as dash:
        await dash.sees("active 1-2")
        await dash.press("h")
        await dash.sees("▸ c1")
        await dash.press("enter")
        await dash.sees("task c1", "Queue      default", "Type       sum", "State      completed", "Retention  10m")
        await dash.sees("Payload  0 B", "Result  34 B", '"sum": 3.140,', '"of": [', no="none")
        await dash.press("G")
        await dash.sees('"none": {}', no="Queue  ")
        await dash.sees("r run  a archive  d delete", no="c cancel")
        await dash.press("escape")
        await dash.sees("▸ c1")


@on_a_loop
async def test_bytes_that_are_no_text_are_dumped_and_text_is_escaped(filled: Fastq) -> None:
    async with driven(filled.url, queue="default") as dash:
        await dash.sees("active 1-2")
        await dash.press("l")
        await dash.sees("▸ p1")
        await dash.press("j", "enter")
        await dash.sees("task p2", "00000000  80 81 82 83", "00000010  90 91", "................")
        await dash.press("escape", "j", "enter")
        await dash.sees("task p3", "Headers            trace=7", r" строка\x1b[31m", no="\x1b")


@on_a_loop
async def test_a_long_payload_is_scrolled_and_shown_in_part(fastq: Fastq) -> None:
    with Client(fastq.url) as client:
        client.enqueue("big", json.dumps([f"item {n:06}" for n in range(20_000)]).encode(), task_id="big")
    async with driven(fastq.url) as dash:
        await dash.sees("default")
        await dash.press("enter")
        await dash.sees("▸ big")
        await dash.press("enter")
        await dash.sees("item 000000", "Payload  293.0 kB")
        await dash.press("pagedown", "j", "space")
        await dash.sees("item 0000", no="Queue ")
        await dash.press("G")
        await dash.sees("… the first 65,536 characters as shown here, of 293.0 kB in all")
        await dash.press("g")
        await dash.sees("Queue ")


@on_a_loop
async def test_a_task_that_ends_meanwhile_stays_to_be_read_and_nothing_is_done_to_it(filled: Fastq, db: Redis) -> None:
    async with driven(filled.url, queue="default", refresh_s=1.0) as dash:
        await dash.sees("▸ a1")
        await dash.press("enter")
        await dash.sees("State    active", "Timeout  1m", "running", "c cancel")
        db.delete(keys.task("default", "a1"))
        await dash.sees("task a1  is gone: done or deleted", "running", no="c cancel")
        await dash.press("c")
        await dash.sees("There is no task here.")


@on_a_loop
async def test_a_task_is_acted_on_from_its_own_view(filled: Fastq, db: Redis) -> None:
    async with driven(filled.url, queue="default") as dash:
        await dash.sees("active 1-2")
        await dash.press("l", "l", "l", "l")
        await dash.sees("▸ r1")
        await dash.press("enter")
        await dash.sees("State              retry", "Last error         ValueError: no such\\nuser")
        await dash.press("r", "y")
        await dash.sees("State              pending", "1 task made pending.")
        assert Seeded(db).task("r1")["state"] == b"pending"
        await dash.press("d", "y")
        await dash.sees("is gone: done or deleted", "1 task deleted.")
