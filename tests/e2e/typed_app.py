"""An app of typed tasks for whole workers."""

import asyncio
import os
import time
from collections.abc import AsyncIterator

import msgspec

from fastq import App, Context, Retry, RevokeTask, RunningTask, Snooze
from tests.e2e.apps import tell
from tests.e2e.asking import ask


class Env(msgspec.Struct):
    pid: int
    loop: object


class Size(msgspec.Struct):
    width: int
    height: int


app = App()
images = App()


@app.lifespan
async def env() -> AsyncIterator[Env]:
    env = Env(os.getpid(), asyncio.get_running_loop())
    yield env
    env.pid = 0


@images.task("media.resize", queue="media", aliases=["images.scale"])
def resize(id: int, width: int = 640) -> Size:
    return Size(width, id)


@app.task("who", retention=3600)
def who(ctx: Context[Env]) -> bool:
    return ctx.env.pid == os.getpid()


@app.task("who.async", retention=3600)
async def who_async(ctx: Context[Env], *, next: int | None = None) -> bool:
    if next is not None:
        await follow.aenqueue(next)
        follow.enqueue(next + 1)
    return ctx.env.loop is asyncio.get_running_loop()


@app.task("follow", retention=3600)
async def follow(ctx: Context[Env], id: int) -> int:
    tell("follows", ctx)
    return id


@app.handler("raw:")
def raw(task: RunningTask) -> None:
    tell("raw", task)


app.include(images)


broken = App()


@broken.task("t")
def needs_env(ctx: Context[Env]) -> None: ...


@app.task("snoozes", max_retry=0, retention=3600)
def snoozes(ctx: Context[Env], gate: str) -> str:
    if not ask("EXISTS", gate):
        tell("snoozes", ctx)
        raise Snooze(after=1)
    return f"ran at {ctx.retried} retried"


@app.task("pages", retention=3600)
def pages(ctx: Context[Env], gate: str) -> int:
    for page in range(3):
        ctx.progress(page + 1, 4, "pages")
    ctx.progress(4, 4, "pages")
    tell("waits", ctx)
    while not ask("EXISTS", gate):
        time.sleep(0.01)
    for page in (5, 6):
        ctx.progress(page)
    return 4


@app.task("revokes")
def revokes() -> None:
    raise RevokeTask


@app.task("retries", max_retry=1, backoff=3600, dont_retry_on=ZeroDivisionError)
async def retries(how: str) -> None:
    if how == "now":
        raise Retry(after=0)
    raise ZeroDivisionError if how == "never" else ValueError(how)
