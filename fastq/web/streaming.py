"""Replies that are made while they are sent: the events that update an open page, and long lists."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Send

from fastq.errors import BrokerError, FastqError
from fastq.info import TaskHead
from fastq.web.compressing import flowing, takes_gzip
from fastq.web.live import TroubleError
from fastq.web.site import Call, Endpoint, Refusal, Route, find_route
from fastq.web.work import FullError

PART_BYTES: Final = 65_536
EVENTS: Final = "text/event-stream"


def in_parts(send: Send) -> Send:
    """Return a ``send`` that sends a body in parts, each after the client has read the previous part."""

    async def send_parts(message: Message) -> None:
        body, at = message.get("body", b""), 0
        while len(body) - at > PART_BYTES:
            await send({**message, "body": body[at : at + PART_BYTES], "more_body": True})
            at += PART_BYTES
        await send({**message, "body": body[at:]} if at else message)

    return send_parts


def in_pieces(
    call: Call,
    name: str,
    pieces: AsyncIterator[Sequence[TaskHead]],
    describe: Callable[[TaskHead], Mapping[str, Any]],
    more: Mapping[str, Any],
) -> Response:
    """Return a JSON object with a list of tasks and more members; only a chunk of the list is in memory at a time."""

    async def texts() -> AsyncIterator[str]:
        yield f"{{{json.dumps(name)}: ["
        joint = ""
        async for infos in pieces:
            described = []
            async with call.site.turns as turns:
                for info in infos:
                    described.append(json.dumps(describe(info)))
                    await turns.breathe()
            yield joint + ", ".join(described)
            joint = ", "
        yield f"], {json.dumps(more)[1:]}"

    return StreamingResponse(texts(), media_type="application/json")


def events_of(routes: Sequence[Route]) -> Endpoint:
    """Return the endpoint that streams the changes of live pages."""
    live = [route for route in routes if route.live_s]

    async def events(call: Call) -> Response:
        path, _, query = call.request.query_params.get("of", "").partition("?")
        route, names = find_route(live, "GET", path)
        scope = {**call.request.scope, "method": "GET", "query_string": query.encode()}
        page = Call(call.site, Request(scope), call.user, call.base, names, is_let_in=True, is_live=True)
        page.check_names()
        if call.site.live.is_full(call.user.name):
            raise Refusal(503, "too many pages are open; this one is not brought up to date")

        async def render() -> Mapping[str, str]:
            page.parts = {}
            try:
                await route.endpoint(page)
            except Refusal as refusal:
                raise TroubleError(refusal.text) from None
            except FullError as error:
                raise TroubleError(str(error)) from None
            except BrokerError as error:
                raise TroubleError(f"Redis does not answer: {error}" if error.transient else str(error)) from None
            except (FastqError, ValueError) as error:
                raise TroubleError(str(error)) from None
            return page.parts

        own = call.owner if route.is_own else ""
        key = (path, query, call.base, call.user.role, tuple(call.user.queues), own)
        watched = call.site.live.watch(key, render, route.live_s, call.user.name)
        headers = {"x-accel-buffering": "no", "vary": "accept-encoding"}
        if takes_gzip(call.request):
            headers["content-encoding"] = "gzip"
            return StreamingResponse(flowing(watched), headers=headers, media_type=EVENTS)
        return StreamingResponse(watched, headers=headers, media_type=EVENTS)

    return events
