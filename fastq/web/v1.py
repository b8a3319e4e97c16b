"""The REST API ``/api/v1``: the records that ``fastq --json`` writes, and jobs for what takes long.

``docs/make_web_schema.py`` writes its description from ``V1`` into ``openapi.json``.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from importlib import resources
from typing import Any, Final, TypeAlias

from starlette.responses import Response

from fastq.common.durations import parse_duration
from fastq.common.states import TaskState
from fastq.errors import QueueNotFoundError, TaskNotFoundError
from fastq.inspector.jobs import Place, canceling, doing, doing_all
from fastq.inspector.json_records import (
    acted_record,
    attempt_record,
    daily_record,
    entry_record,
    event_record,
    history_record,
    lane_record,
    queue_record,
    server_record,
    task_record,
    time_text,
)
from fastq.web.days import days_of, zone_of
from fastq.web.lanes import LANE_VERBS, change_lane, read_lanes
from fastq.web.orders import delete_as_job, job_of, require_possible, run_as_job, sees, stopped
from fastq.web.query import Query
from fastq.web.render import page
from fastq.web.search import Found, look
from fastq.web.site import Call, Endpoint, Refusal, Route
from fastq.web.streaming import in_pieces
from fastq.web.view import require_whole
from fastq.web.work import Work

ROOT: Final = "/api/v1"
PAGE_SIZE: Final = 50
MOST_A_PAGE: Final = 1_000
MOST_PAGES: Final = 10**9
MOST_CHOSEN: Final = 1_000
MOST_WHOLE: Final = 8_000_000
"""The most bytes of a payload or a result in a reply."""
DAYS: Final = 14
FAILURES: Final = 50
SETTLE_S: Final = 0.5
PAGED: Final = ("page", "size")
_OPENAPI: Final = json.loads((resources.files("fastq.web") / "openapi.json").read_text("utf-8"))

Record: TypeAlias = Mapping[str, Any]
Read: TypeAlias = Callable[[Call], Awaitable[Record | Response]]


def _json(value: Record, status: int = 200) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")


async def queues(call: Call) -> Record:
    """List the queues; tasks in more than 1 000 groups are estimated."""
    return {"queues": [queue_record(info) for info in await call.view.queue_infos()]}


async def queue(call: Call) -> Record:
    """Describe a queue and its last days, today first."""
    info = await call.view.queue_info(call.names["queue"])
    days = await call.inspector.history(info.queue, DAYS)
    return {"queue": queue_record(info), "days": [daily_record(day) for day in days]}


async def runs(call: Call) -> Record:
    """Describe the runs of a queue's tasks for a time until now, such as since=8h; by type with by_type=1.

    With zone=Europe/Paris also by day in this time zone, 14 days with since=336h; the first may be a part of a day.
    """
    since_s, zone = parse_duration(call.request.query_params.get("since", "1h")) / 1e9, zone_of(call)
    by_type = call.request.query_params.get("by_type", "") not in ("", "0", "false")
    found = await call.inspector.run_history(call.names["queue"], since_s, by_type=by_type)
    days = days_of(found.points, found.step, zone) if zone else []
    sums = history_record(replace(found, points=[day.stats for day in days]))["points"]
    by_day = [{"date": str(day.date), "hours": day.hours, **told} for day, told in zip(days, sums, strict=True)]
    return {**history_record(found), "days": by_day}


async def groups(call: Call) -> Record:
    """List about size groups of a queue, and the cursor of the next ones, or null."""
    size, cursor = call.number("size", PAGE_SIZE, MOST_A_PAGE), call.request.query_params.get("cursor", "")
    found, after = await call.inspector.list_groups(call.names["queue"], cursor=cursor, page_size=size)
    return {"groups": [{"group": each.group, "size": each.size} for each in found], "cursor": after or None}


async def tasks(call: Call) -> Response:
    """List the tasks of a state; those that aggregate by group."""
    state, group = call.state(), call.request.query_params.get("group")
    size, number = call.number("size", PAGE_SIZE, MOST_A_PAGE), call.number("page", 1, MOST_PAGES)
    if (state is TaskState.AGGREGATING) != (group is not None):
        raise Refusal(400, "group=NAME goes with the state aggregating, and the state aggregating with group=NAME")
    more: dict[str, Any] = {"group": group, "page": number, "page_size": size}
    found = await call.view.pieces(call.names["queue"], state, MOST_WHOLE, cuts=False, **more)
    total = await call.inspector.count_tasks(call.names["queue"], state, group=group)
    return in_pieces(call, "tasks", found, task_record, {"total": total})


async def task(call: Call) -> Record:
    """Describe a task and its failed attempts, the oldest first."""
    info = await call.view.task(call.names["queue"], call.names["id"], MOST_WHOLE)
    require_whole(info, MOST_WHOLE)
    attempts = await call.inspector.get_failed_attempts(info.queue, info.id)
    return {"task": task_record(info), "failed_attempts": [attempt_record(each) for each in attempts]}


async def search(call: Call) -> Record:
    """Search as the page does; ask again while its state is running."""
    query = Query.of(call.request.query_params.get("q", ""))
    if not query.text:
        raise Refusal(400, "q=WORDS says what to search for")
    work = look(call, query)
    await work.settle(SETTLE_S)
    found: Found = work.result
    return {
        "state": work.state.value,
        "looked": work.progress.looked or 0,
        "total": work.progress.total,
        "found": found.count,
        "errors": dict(found.errors.most_common()),
        "types": dict(found.types.most_common()),
        "tasks": [
            {"queue": hit.queue, "state": hit.state.value, "id": hit.id, "type": hit.type, "error": hit.error or None}
            for hit in found.hits
        ],
    }


async def servers(call: Call) -> Record:
    """List the running servers."""
    return {"servers": [server_record(server) for server in await call.view.servers()]}


async def schedulers(call: Call) -> Record:
    """List the periodic tasks."""
    return {"entries": [entry_record(entry) for entry in await call.view.scheduler_entries()]}


async def events(call: Call) -> Record:
    """List the times at which a periodic task was enqueued, the latest first."""
    wanted = call.names["entry"]
    if not call.view.is_of_all and wanted not in {entry.id for entry in await call.view.scheduler_entries()}:
        return {"events": []}
    size, number = call.number("size", PAGE_SIZE, MOST_A_PAGE), call.number("page", 1, MOST_PAGES)
    found = await call.inspector.list_scheduler_enqueue_events(wanted, page=number, page_size=size)
    return {"events": [event_record(event) for event in found]}


async def redis(call: Call) -> Record:
    """Return INFO, or CLUSTER INFO of a cluster."""
    info = await call.redis_info()
    return {"address": call.inspector.where, "is_cluster": call.site.is_cluster, "info": dict(info)}


async def jobs(call: Call) -> Record:
    """List the jobs, the newest first."""
    return {"jobs": [_job(work) for work in reversed(call.site.board.jobs.values()) if sees(call, work)]}


async def job(call: Call) -> Record:
    """Describe a job."""
    return _job(job_of(call))


def _job(work: Work) -> Record:
    return {
        "id": work.id,
        "title": work.title,
        "state": work.state.value,
        "done": work.progress.done,
        "total": work.progress.total,
        "failures": list(work.progress.failures[:FAILURES]),
        "said": work.said or None,
        "by": work.by or None,
        "began_at": time_text(work.began_at),
        "ended_at": time_text(work.ended_at),
        "stopped_by": work.stopped_by,
    }


# Actions ------------------------------------------------------------------------------------------------------------


async def pause(call: Call) -> Record:
    """Pause a queue; status 409 if it is paused already."""
    await call.inspector.pause_queue(call.names["queue"], ahead=False)
    return await queue(call)


async def resume(call: Call) -> Record:
    """Resume a queue; status 409 if it is not paused."""
    await call.inspector.unpause_queue(call.names["queue"])
    return await queue(call)


async def delete(call: Call) -> Record:
    """Delete a queue, with its tasks if force=1, as a job."""
    force = call.request.query_params.get("force", "") not in ("", "0", "false")
    await call.view.queue_info(call.names["queue"])
    work, _ = await delete_as_job(call, force=force)
    return _job(work)


async def _object(call: Call) -> Mapping[str, Any]:
    if call.request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "the body must be application/json")
    try:
        body = json.loads(await call.body())
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refusal(400, "the body must be a JSON object")
    return body


def _doer_of_chosen(verb: str) -> Read:
    async def do(call: Call) -> Record:
        state, body = call.state(), await _object(call)
        ids = body.get("ids")
        if body.keys() != {"ids"} or not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
            raise Refusal(400, 'the body must be {"ids": ["…"]}')
        if not 0 < len(ids) <= MOST_CHOSEN:
            raise Refusal(400, f"{len(ids):,} ids are given; from 1 to {MOST_CHOSEN:,} are possible")
        require_possible(verb, state)
        done, failed = 0, dict[str, str]()
        call.notes = {"tasks": ids, "failed": failed}
        for task_id in ids:
            try:
                info = await call.view.task(call.names["queue"], task_id, 0)
                if info.state is not state:
                    raise TaskNotFoundError(info.queue, task_id)
                work = canceling([info]) if verb == "cancel" else doing(verb, [info])
                progress = await call.inspector.carry_out(work)
            except (QueueNotFoundError, TaskNotFoundError, ValueError) as error:
                failed[task_id] = str(error)
                continue
            done += progress.done
            if progress.failures:
                failed[task_id] = progress.failures[0]
        return acted_record(done, failed)

    do.__doc__ = f"{verb.capitalize()} the tasks with the given ids, if they are in this state."
    return do


def _doer_of_all(verb: str) -> Read:
    async def do(call: Call) -> Record:
        state, group = call.state(), call.request.query_params.get("group")
        require_possible(verb, state)
        place = Place(call.names["queue"], state, group)
        order = doing_all(verb, place, await call.inspector.count_tasks(place.queue, state, group=group))

        async def carry_out(work: Work) -> str:
            await call.inspector.carry_out(order, progress=work.note)
            return order.outcome(work.progress)

        work = Work(order.question.rstrip("?"), call.user.name, frozenset({place.queue}))
        await run_as_job(call, f"task.{verb}", work, carry_out)
        return _job(work)

    do.__doc__ = f"{verb.capitalize()} all tasks of a state, or of one group, as a job."
    return do


def _doer_of_lanes(verb: str) -> Read:
    async def do(call: Call) -> Record:
        lane = call.request.query_params.get("lane")
        if lane is None:
            raise Refusal(400, "lane=NAME says which; without text it is the queue as a whole")
        limit = (await _object(call)).get("limit") if verb == "limit" else None
        if limit is not None and not isinstance(limit, str):
            raise Refusal(400, 'the body must be {"limit": "2, 5/s"}, or {"limit": null}')
        await change_lane(call, verb, lane or None, limit)
        return lane_record(await call.inspector.get_lane(call.names["queue"], lane or None))

    does = "Set or remove the limit of" if verb == "limit" else verb.capitalize()
    do.__doc__ = f"{does} a lane; status 409 if it cannot be."
    return do


async def stop(call: Call) -> Record:
    """Stop a job before its next task."""
    return _job(await stopped(call))


# The table ----------------------------------------------------------------------------------------------------------


async def openapi(call: Call) -> Response:
    """Return the description of this API."""
    return _json({**_OPENAPI, "servers": [{"url": call.base or "/"}]})


async def described(call: Call) -> Response:
    """Show the description of this API as a page."""
    routes = [(route, (route.endpoint.__doc__ or "").strip()) for route in V1]
    return page(call, "api.jinja", title="API", section="", routes=routes, root=ROOT)


def _answering(read: Read) -> Endpoint:
    async def endpoint(call: Call) -> Response:
        try:
            record = await read(call)
        except (QueueNotFoundError, TaskNotFoundError) as error:
            raise Refusal(404, str(error)) from None
        if isinstance(record, Response):
            return record
        is_begun = record.get("state") == "running" and call.request.method != "GET"
        return _json(record, 202 if is_begun else 200)

    endpoint.__doc__ = read.__doc__
    return endpoint


def _get(path: str, read: Read, reply: str, *query: str) -> Route:
    return Route("GET", f"{ROOT}{path}", _answering(read), reply=reply, query=query)


def _act(path: str, read: Read, action: str, reply: str, *query: str, method: str = "POST") -> Route:
    return Route(method, f"{ROOT}{path}", _answering(read), action, reply=reply, query=query)


_QUEUE: Final = "/queues/{queue}"
V1: Final = [
    _get("/queues", queues, "queues"),
    _get(_QUEUE, queue, "queue"),
    _get(f"{_QUEUE}/runs", runs, "runs_of_queue", "since", "by_type", "zone"),
    _get(f"{_QUEUE}/groups", groups, "groups", "cursor", "size"),
    _get(f"{_QUEUE}/lanes", read_lanes, "lanes", "lane", "cursor", "size"),
    _get(f"{_QUEUE}/tasks/{{id}}", task, "task_with_attempts"),
    _get(f"{_QUEUE}/{{state}}", tasks, "tasks", "group", *PAGED),
    _get("/search", search, "search", "q"),
    _get("/servers", servers, "servers"),
    _get("/schedulers", schedulers, "entries"),
    _get("/schedulers/{entry}/events", events, "events", *PAGED),
    _get("/redis", redis, "redis"),
    _get("/jobs", jobs, "jobs"),
    _get("/jobs/{job}", job, "job"),
    _act(f"{_QUEUE}/pause", pause, "queue.pause", "queue"),
    _act(f"{_QUEUE}/resume", resume, "queue.resume", "queue"),
    *(_act(f"{_QUEUE}/lanes/{verb}", _doer_of_lanes(verb), f"lane.{verb}", "lane", "lane") for verb in LANE_VERBS),
    _act(_QUEUE, delete, "queue.delete", "job", "force", method="DELETE"),
    *(
        _act(f"{_QUEUE}/{{state}}/{verb}", _doer_of_chosen(verb), f"task.{verb}", "acted")
        for verb in ("run", "cancel", "archive", "delete")
    ),
    *(
        _act(f"{_QUEUE}/{{state}}/{verb}-all", _doer_of_all(verb), f"task.{verb}", "job", "group")
        for verb in ("run", "archive", "delete")
    ),
    _act("/jobs/{job}/stop", stop, "job.stop", "job"),
    Route("GET", f"{ROOT}/openapi.json", openapi, reply="openapi"),
    Route("GET", ROOT, described),
]
"""The paths of the API."""
