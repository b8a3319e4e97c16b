"""Typed tasks as users write them; checked by mypy and pyright, never run.

``test_typed_tasks.py`` puts one mistake at a time into it: each checker must find each.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, assert_type

from fastq import (
    App,
    AsyncClient,
    AsyncHandle,
    Batch,
    Client,
    Context,
    EnqueueResults,
    Handle,
    Task,
    TaskCall,
    TaskInfo,
    TaskState,
)


@dataclass
class Address:
    street: str
    city: str


@dataclass
class Env:
    limit: int


app = App("redis://127.0.0.1:6379/0")


@app.task("media.resize", queue="media", max_retry=3, timeout=60)
def resize(id: int, width: int = 640, *, mode: Literal["fit", "fill"] = "fit") -> dict[str, int]:
    return {"id": id, "width": width}


@app.task
async def ship(order: int, to: Address) -> str:
    return to.city


@app.task("charge", aliases=["bill"], strict=True)
def charge(ctx: Context[Env], order: int, cents: int) -> bool:
    return cents < ctx.env.limit and ctx.retried < 3


@app.task("later")
async def later(ctx: Context[Env], order: int) -> int:
    return order


@app.task("embed", batch=64, max_wait=timedelta(milliseconds=50), queue="inference")
def embed(texts: Batch[str, Env]) -> list[float]:
    assert_type(texts[0], str)
    assert_type(texts.env, Env)
    assert_type(texts.contexts[0].retried, int)
    texts.fail(0, ValueError("empty"))
    texts.retry(1, after=5)
    return [float(len(text)) for text in texts]


@app.task("insert", batch=500)
async def insert(rows: Batch[Address]) -> None:
    assert_type(rows[0].city, str)


@app.handler("raw", batch=64, max_wait=0.05)
def raw(batch: Batch) -> list[int]:
    return [task.retried for task in batch]


@app.lifespan
def env() -> Iterator[Env]:
    yield Env(1000)


@App().lifespan
async def async_env() -> AsyncIterator[Env]:
    yield Env(1000)


def producer_of_batches() -> None:
    assert_type(embed.task("text"), TaskCall[float])
    assert_type(embed.submit("text").result(), float)
    assert_type(embed(["a", "b"]), list[float])
    assert_type(insert.submit(Address("Lange Str. 1", "Ulm")).result(), None)
    embed.enqueue_many(embed.task(text) for text in ("a", "b"))


def producer() -> None:
    assert_type(resize(7), dict[str, int])
    assert_type(resize.task(7, width=800), TaskCall[dict[str, int]])
    assert_type(resize.submit(7).result(), dict[str, int])
    assert_type(charge.submit(7, cents=100), Handle[bool])
    with Client() as client:
        handle = client.submit(resize.task(7), queue="low")
        assert_type(handle, Handle[dict[str, int]])
        handles = client.submit_many(resize.task(id) for id in range(3))
        assert_type(client.gather(handles, timeout=5), list[dict[str, int]])
        for done in client.as_completed(handles):
            assert_type(done.result(timeout=timedelta(seconds=1)), dict[str, int])
        assert_type(client.submit(Task("raw")), Handle[Any])
        assert_type(handle.state(), TaskState)
    assert_type(resize.enqueue(7, 800, mode="fill"), TaskInfo)
    assert_type(resize.enqueue_many(resize.task(id) for id in range(3)), EnqueueResults)
    assert_type(resize.options(queue="low", process_in=60).enqueue(7).queue, str)
    assert_type(charge.enqueue(7, cents=100), TaskInfo)
    ship.enqueue(7, Address("Lange Str. 1", "Ulm"))
    app.include(App())
    assert_type(resize.type, str)


async def async_producer(context: Context[Env]) -> None:
    assert_type(await resize.aenqueue(7), TaskInfo)
    assert_type(await ship(7, Address("Lange Str. 1", "Ulm")), str)
    assert_type(await later(context, 7), int)
    assert_type(charge(context, 7, 100), bool)
    assert_type(await later.aenqueue(7), TaskInfo)
    assert_type(await (await resize.asubmit(7)), dict[str, int])
    assert_type(await later.asubmit(7), AsyncHandle[int])
    assert_type(ship.submit(7, Address("Lange Str. 1", "Ulm")), Handle[str])
    async with AsyncClient() as client:
        handles = await client.submit_many([later.task(7), later.task(8)])
        async for done in client.as_completed(handles):
            assert_type(await done, int)
        assert_type(await client.gather(handles), list[int])
        assert_type(await (await client.submit(later.task(7))).result(timeout=5), int)
    assert_type(context.env.limit, int)
