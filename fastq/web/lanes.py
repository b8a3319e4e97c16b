"""The page of a queue's lanes, which says why their tasks wait, its forms, and the routes for lanes in ``/api/v1``."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from fastq.errors import QueueNotFoundError
from fastq.inspector import LaneInfo
from fastq.inspector.json_records import lane_record
from fastq.web.render import page
from fastq.web.site import Call, Endpoint, Refusal, Route, name_in_path
from fastq.wire.limit import Limit

PAGE_SIZE: Final = 50
MOST_A_PAGE: Final = 1_000
_SAID: Final = {"limit": "The limit is changed.", "pause": "The lane is paused.", "resume": "The lane is resumed."}
LANE_VERBS: Final = tuple(_SAID)


async def _page_of(call: Call) -> tuple[list[LaneInfo], str]:
    """Return the lane that is asked for, or a page of lanes and the cursor of the next page."""
    queue, asked = call.names["queue"], call.request.query_params
    if "lane" in asked:
        return [await call.inspector.get_lane(queue, asked["lane"] or None)], ""
    size = call.number("size", PAGE_SIZE, MOST_A_PAGE)
    return await call.inspector.lanes(queue, cursor=asked.get("cursor", ""), page_size=size)


async def lanes(call: Call) -> Response:
    """Show the lanes of a queue."""
    try:
        info, servers, (found, after) = await asyncio.gather(
            call.view.queue_info(call.names["queue"]), call.view.servers(), _page_of(call)
        )
    except QueueNotFoundError as error:
        raise Refusal(404, str(error)) from None
    asked = call.request.query_params
    return page(
        call,
        "lanes.jinja",
        title=f"Lanes of {info.queue}",
        section="queues",
        info=info,
        lanes=found,
        after=after,
        cursor=asked.get("cursor", ""),
        lane=asked.get("lane"),
        said=_SAID.get(asked.get("did", ""), ""),
        is_served=any(info.queue in server.queues for server in servers),
    )


async def change_lane(call: Call, verb: str, lane: str | None, limit: str | None) -> None:
    """Pause or resume a lane, or set its limit; None or a blank text removes the limit."""
    queue = call.names["queue"]
    if lane is None and verb != "limit":
        raise Refusal(400, f"no lane is named; a queue as a whole has a {verb} of its own")
    call.notes = {"lane": lane, **({"limit": limit} if verb == "limit" else {})}
    if verb == "limit":
        text = (limit or "").strip()
        await call.inspector.set_limit(queue, lane, Limit.parse(text) if text else None)
    elif lane is not None:
        await (call.inspector.pause_lane if verb == "pause" else call.inspector.resume_lane)(queue, lane)


def _doer(verb: str) -> Endpoint:
    async def act(call: Call) -> Response:
        given = dict(await call.form())
        if "lane" not in given:
            raise Refusal(400, "the form names no lane")
        await change_lane(call, verb, given["lane"] or None, given.get("limit"))
        where = f"{call.base}/queues/{name_in_path(call.names['queue'])}/lanes"
        only = {"lane": given["lane"]} if given.get("only") else {}
        return RedirectResponse(f"{where}?{urlencode({**only, 'did': verb})}", 303)

    return act


# The API -----------------------------------------------------------------------------------------------------------


async def read_lanes(call: Call) -> Mapping[str, Any]:
    """List about size lanes of a queue with what their tasks wait for, and the cursor of the next ones, or null.

    With lane=NAME only this one; without text it is the queue as a whole.
    """
    found, after = await _page_of(call)
    return {"lanes": [lane_record(info) for info in found], "cursor": after or None}


LANES: Final = Route("GET", "/queues/{queue}/lanes", lanes, live_s=2)
ACTING_ON_LANES: Final = [
    Route("POST", f"/queues/{{queue}}/lanes/{verb}", _doer(verb), f"lane.{verb}") for verb in LANE_VERBS
]
