"""A FastAPI app on a real Redis: its client comes by the lifespan, and is closed with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

pytest.importorskip("fastapi")

from fastapi import Depends, FastAPI, Request
from fastapi.testclient import TestClient

from fastq import App, AsyncClient
from fastq.contrib.starlette import client, lifespan
from fastq.testing import drain
from tests.waiting import PATIENCE_S, until

Fastq = Annotated[AsyncClient, Depends(client)]


def make_web(app: App, own: Any = None) -> FastAPI:
    web = FastAPI(lifespan=lifespan(app, own))

    @app.task("add", retention=60)
    def add(left: int, right: int) -> int:
        return left + right

    @web.post("/add/{left}/{right}")
    async def post(left: int, right: int, fastq: Fastq) -> str:
        return (await fastq.enqueue(add.task(left, right))).id

    @web.post("/plainly/{left}/{right}")
    def post_plainly(left: int, right: int) -> str:
        return add.enqueue(left, right).id

    @web.get("/results/{task_id}")
    async def result(task_id: str, fastq: Fastq) -> str:
        return str(await fastq.wait("default", task_id, timeout=60))

    @web.get("/own")
    async def own_state(request: Request) -> Any:
        return request.state.name

    return web


def test_requests_enqueue_and_wait(url: str) -> None:
    app = App(url)
    with TestClient(make_web(app)) as http:
        ids = [http.post(f"/{path}/1/2").json() for path in ("add", "plainly")]
        assert len(drain(app, url)) == 2
        assert [http.get(f"/results/{task_id}").json() for task_id in ids] == ["b'3'"] * 2
    with TestClient(make_web(App(url))) as http:  # another loop
        assert http.post("/add/1/2").status_code == 200


def test_the_clients_are_closed_at_the_end(url: str, db: Any) -> None:
    app, before = App(url), len(db.client_list())

    async def serve() -> None:
        async with lifespan(app)(None) as state:
            await state["fastq_client"].ping()
            app.client.ping()
            assert len(db.client_list()) > before + 1
        await until(lambda: len(db.client_list()) == before)

    asyncio.run(asyncio.wait_for(serve(), PATIENCE_S))


def test_a_lifespan_of_its_own_runs_within(url: str) -> None:
    steps = []

    @asynccontextmanager
    async def own(web: FastAPI) -> AsyncIterator[dict[str, str]]:
        steps.append("begins")
        yield {"name": "shop"}
        steps.append("ends")

    with TestClient(make_web(App(url), own)) as http:
        assert http.get("/own").json() == "shop"
        assert http.post("/add/1/2").status_code == 200
        assert steps == ["begins"]
    assert steps == ["begins", "ends"]


def test_the_web_app_starts_while_redis_is_away() -> None:
    with TestClient(make_web(App("unix:///nowhere/redis.sock")), raise_server_exceptions=False) as http:
        assert http.post("/add/1/2").status_code == 500


def test_without_the_lifespan_the_dependency_says_what_is_missing(url: str) -> None:
    web = make_web(App(url))
    with pytest.raises(RuntimeError, match=r"needs lifespan=fastq\.contrib\.starlette\.lifespan"):
        TestClient(web).post("/add/1/2")
