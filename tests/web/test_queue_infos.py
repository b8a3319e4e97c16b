"""Tasks in very many groups are counted now and then; all else, and fewer groups, each time."""

import asyncio

import pytest
from redis import Redis

from fastq import AsyncInspector, Client
from fastq.web import queue_infos
from fastq.web.queue_infos import QueueInfos


def test_tasks_in_many_groups_are_counted_now_and_then(url: str, db: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_infos, "MANY_GROUPS", 2)
    monkeypatch.setattr(queue_infos, "COUNTED_EVERY_S", 1e9)

    async def look() -> None:
        async with AsyncInspector(url) as inspector:
            infos = QueueInfos(inspector)

            async def counts() -> tuple[int, int, int]:
                info = await infos.get("q")
                return info.pending, info.aggregating, info.size

            assert await counts() == (0, 2, 2)
            put(1, "g1")
            assert await counts() == (0, 3, 3)  # two groups are not many
            put(2, "g2")
            assert await counts() == (0, 4, 4)
            put(3, "g3")
            put(4, "")
            before = calls(db)
            assert await counts() == (1, 4, 5)
            assert calls(db) == before
            monkeypatch.setattr(queue_infos, "COUNTED_EVERY_S", 0.0)
            assert await counts() == (1, 5, 6)
            monkeypatch.setattr(queue_infos, "COUNTED_EVERY_S", 1e9)
            db.delete("asynq:{q}:g:g3", "asynq:{q}:g:g2")
            db.srem("asynq:{q}:groups", "g2", "g3")
            assert await counts() == (1, 3, 4)

    def put(n: int, group: str) -> None:
        with Client(url) as client:
            client.enqueue("t", queue="q", task_id=f"x{n}", **({"group": group} if group else {}))  # type: ignore[arg-type]

    put(-1, "g0")
    put(0, "g1")
    asyncio.run(look())


def calls(db: Redis) -> int:
    """Return how often groups were looked through."""
    return int(db.info("commandstats").get("cmdstat_sscan", {"calls": 0})["calls"])
