"""Starlette and FastAPI: a lifespan that closes the clients of an app, and a dependency that returns its client."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias

from starlette.requests import HTTPConnection

from fastq.app.app import App
from fastq.client import AsyncClient

STATE: Final = "fastq_client"
"""The name of the client in the state of a request."""

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]


def lifespan(app: App, own: Lifespan | None = None) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Return the ``lifespan`` of a web app whose requests enqueue tasks of an ``App``, around its ``own`` one.

    The clients connect when first used, so the web app also starts while Redis is down. They are closed when it ends.
    """

    @asynccontextmanager
    async def around(web: Any) -> AsyncIterator[Mapping[str, Any]]:
        try:
            if own is None:
                yield {STATE: app.async_client}
            else:
                async with own(web) as state:
                    yield {**(state or {}), STATE: app.async_client}
        finally:
            await app.aclose()
            app.close()

    return around


def client(connection: HTTPConnection) -> AsyncClient:
    """Return the client of the app that ``lifespan`` got. Call this with a request, or use FastAPI's ``Depends``."""
    try:
        found: AsyncClient = connection.scope["state"][STATE]
    except KeyError:
        raise RuntimeError("the web app needs lifespan=fastq.contrib.starlette.lifespan(app)") from None
    return found
