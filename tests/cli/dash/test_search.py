"""The search through tasks: in stretches, bounded, and going on where it ended."""

import asyncio
from typing import Any

from fastq import AsyncInspector
from fastq.cli.dash.search import MOST_BYTES, MOST_TASKS, Found, search
from fastq.common.states import TaskState
from fastq.inspector.jobs import Place
from tests.cli.commands import Fastq
from tests.inspector.harness import Seeded

PENDING = Place("default", TaskState.PENDING)


def find(url: str, text: str, start: int = 0, wanted: int = 10, place: Place = PENDING) -> tuple[Found, list[Found]]:
    """Search, and return what was found, and what was told meanwhile."""
    told: list[Found] = []

    async def ask() -> Found:
        async with AsyncInspector(url) as inspector:
            return await search(inspector, place, text, start, wanted, told.append)

    return asyncio.run(ask()), told


def test_it_ends_when_enough_was_found_and_goes_on_from_there(fastq: Fastq, db: Any) -> None:
    Seeded(db).pend(*(f"t{n:04}" for n in range(1000)))
    found, told = find(fastq.url, "T00", wanted=150)
    assert [info.id for info in found.infos] == [f"t{n:04}" for n in range(100)]
    assert (found.start, found.end, found.at_end) == (0, 1000, True)
    assert [some.end for some in told] == [200, 400, 600, 800, 1000, 1000]
    found, _ = find(fastq.url, "5", wanted=5)
    assert (found.start, found.end, found.at_end) == (0, 200, False)
    found, _ = find(fastq.url, "t0399", start=200, wanted=5)
    assert [info.id for info in found.infos] == ["t0399"]


def test_it_does_not_look_further_than_is_bearable(fastq: Fastq, db: Any) -> None:
    Seeded(db).pend(*(f"t{n:05}" for n in range(MOST_TASKS + 1000)))
    found, _ = find(fastq.url, "nothing")
    assert (len(found.infos), found.end, found.at_end) == (0, MOST_TASKS, False)
    Seeded(db, "big").pend(*(f"t{n:05}" for n in range(500)), payload=b"x" * 100_000)
    found, _ = find(fastq.url, "nothing", place=Place("big", TaskState.PENDING))
    assert (len(found.infos), found.end, found.at_end) == (0, 200, False)
    assert MOST_BYTES < 200 * 100_000


def test_a_task_is_found_by_its_whole_id_wherever_it_is(fastq: Fastq, db: Any) -> None:
    queue = Seeded(db)
    queue.pend(*(f"t{n:05}" for n in range(MOST_TASKS + 1000)))
    queue.add("retry", {"gone-wrong": 4e9})
    found, _ = find(fastq.url, "t05999", wanted=1)
    assert ([info.id for info in found.infos], found.end) == (["t05999"], 0)
    found, _ = find(fastq.url, "t00001", wanted=5)
    assert [info.id for info in found.infos] == ["t00001"]
    found, _ = find(fastq.url, "gone-wrong")
    assert found.elsewhere is not None
    assert (found.elsewhere.state, len(found.infos)) == (TaskState.RETRY, 0)
