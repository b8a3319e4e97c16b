"""The stream of events with which an open page is brought up to date."""

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fastq.errors import BrokerError, FastqError
from fastq.web.live import TroubleError
from fastq.web.site import Call, Endpoint, Refusal, Route, find_route
from fastq.web.work import FullError

__all__ = ["events_of"]


def events_of(routes: Sequence[Route]) -> Endpoint:
    """Return the endpoint that streams what changes on those of the pages that are live."""
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
        return StreamingResponse(
            call.site.live.watch(key, render, route.live_s, call.user.name),
            headers={"x-accel-buffering": "no"},
            media_type="text/event-stream",
        )

    return events
