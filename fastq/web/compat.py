"""asynqmon's REST API: its paths, status codes, fields and values."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson
from starlette.responses import PlainTextResponse, Response

from fastq.common.states import TaskState
from fastq.errors import (
    BrokerError,
    FastqError,
    QueueNotEmptyError,
    QueueNotFoundError,
    TaskNotFoundError,
)
from fastq.inspector import GroupInfo, QueueInfo
from fastq.web.compat_records import (
    daily_json,
    entry_json,
    event_json,
    group_json,
    listed_json,
    queue_json,
    server_json,
    task_json,
)
from fastq.web.prometheus import metrics
from fastq.web.site import Call, Endpoint, Refusal, Route
from fastq.web.streaming import in_pieces
from fastq.wire.messages import WorkerInfo

PAGE_SIZE: Final = 20
MOST_A_PAGE: Final = 10_000
MOST_PAGES: Final = 10**9
MOST_OF_EACH: Final = 256_000
"""How many bytes of a payload or result are read; the formatters get no more."""
MOST_GROUPS: Final = 1_000
DAYS_OF_QUEUE: Final = 10
DAYS_OF_ALL: Final = 90
CANCELED_A_PAGE: Final = 100
NO_QUEUE: Final = "\n"
"""A name that no queue can have, for a query to Prometheus that must find nothing."""


def _json(value: object) -> Response:
    return Response(json.dumps(value), media_type="application/json")


def _nothing() -> Response:
    return Response(status_code=204)


# Queues -------------------------------------------------------------------------------------------------------------


async def list_queues(call: Call) -> Response:
    """List all queues."""
    return _json({"queues": [queue_json(info) for info in await call.view.queue_infos()]})


async def get_queue(call: Call) -> Response:
    """Describe a queue and its last ten days."""
    info = await call.view.queue_info(call.names["queue"])
    days = await call.inspector.history(info.queue, DAYS_OF_QUEUE)
    return _json({"current": queue_json(info), "history": [daily_json(day) for day in days]})


async def delete_queue(call: Call) -> Response:
    """Delete an empty queue."""
    try:
        await call.inspector.delete_queue(call.names["queue"])
    except QueueNotFoundError as error:
        raise Refusal(404, str(error)) from None
    except QueueNotEmptyError as error:
        raise Refusal(400, str(error)) from None
    return _nothing()


async def pause_queue(call: Call) -> Response:
    """Pause a queue, even if it does not exist yet."""
    await call.inspector.pause_queue(call.names["queue"])
    return _nothing()


async def resume_queue(call: Call) -> Response:
    """Resume a queue."""
    await call.inspector.unpause_queue(call.names["queue"])
    return _nothing()


async def queue_stats(call: Call) -> Response:
    """Describe the last 90 days of all queues."""
    found = await call.inspector.histories(await call.view.queues(), DAYS_OF_ALL)
    stats = {name: [daily_json(day) for day in days] for name, days in found.items()}
    return Response(orjson.dumps({"stats": stats}), media_type="application/json")  # 90 days of every queue are large


async def list_groups(call: Call) -> Response:
    """List the groups of a queue."""
    info = await call.view.queue_info(call.names["queue"])
    return _json({"stats": queue_json(info), "groups": await _groups(call)})


async def _groups(call: Call, wanted: str | None = None) -> list[dict[str, Any]]:
    """List about a thousand groups, and the wanted group, since asynqmon's page searches the list for it."""
    queue = call.names["queue"]
    groups, more = await call.inspector.list_groups(queue, page_size=MOST_GROUPS)
    if more and wanted is not None and all(each.group != wanted for each in groups):
        size = await call.inspector.count_tasks(queue, TaskState.AGGREGATING, group=wanted)
        groups.append(GroupInfo(wanted, size))
    return [group_json(group) for group in groups]


# Lists of tasks -----------------------------------------------------------------------------------------------------


def _page(call: Call) -> dict[str, Any]:
    size = call.number("size", PAGE_SIZE, MOST_A_PAGE)
    return {"page": call.number("page", 1, MOST_PAGES), "page_size": size}


def _lister(state: TaskState) -> Endpoint:
    async def list_tasks(call: Call) -> Response:
        queue, group = call.names["queue"], call.names.get("group")
        infos = await call.view.pieces(queue, state, MOST_OF_EACH, group=group, **_page(call))
        stats: QueueInfo = await call.view.queue_info(queue)
        workers = await _workers(call, queue) if state is TaskState.ACTIVE else {}
        more = {"groups": await _groups(call, group)} if group is not None else {}
        describe = partial(listed_json, call.site, workers=workers)
        return in_pieces(call, "tasks", infos, describe, {"stats": queue_json(stats), **more})

    return list_tasks


async def _workers(call: Call, queue: str) -> Mapping[str, WorkerInfo]:
    servers = await call.view.servers()
    return {worker.task_id: worker for server in servers for worker in server.active_workers if worker.queue == queue}


async def get_task(call: Call) -> Response:
    """Describe a task."""
    try:
        info = await call.view.task(call.names["queue"], call.names["id"], MOST_OF_EACH)
    except (QueueNotFoundError, TaskNotFoundError) as error:
        raise Refusal(404, str(error)) from None
    return _json(task_json(call.site, info))


# Actions on one task, on some, and on all of a state ----------------------------------------------------------------


async def _act(call: Call, verb: str, task_id: str) -> None:
    queue, inspector = call.names["queue"], call.inspector
    if verb == "cancel":
        await _cancel(call, queue, task_id)
    else:
        acts = {"run": inspector.run_task, "archive": inspector.archive_task, "delete": inspector.delete_task}
        await acts[verb](queue, task_id)


async def _cancel(call: Call, queue: str, task_id: str) -> None:
    if not call.view.is_of_all and (await call.view.task(queue, task_id, 0)).state is not TaskState.ACTIVE:
        raise TaskNotFoundError(queue, task_id)
    await call.inspector.cancel_processing(task_id, queue=queue)


def _doer(verb: str) -> Endpoint:
    async def do(call: Call) -> Response:
        await _act(call, verb, call.names["id"])
        return _nothing()

    return do


def _doer_of_some(verb: str, done_name: str, failed_name: str) -> Endpoint:
    async def do_some(call: Call) -> Response:
        done: list[str] = []
        failed: list[str] = []
        call.notes = {"tasks": done, "failed": failed}
        for task_id in await _task_ids(call):
            try:
                await _act(call, verb, task_id)
            except BrokerError:
                raise
            except (FastqError, ValueError):
                failed.append(task_id)
            else:
                done.append(task_id)
        return _json({done_name: done, failed_name: failed})

    return do_some


async def _task_ids(call: Call) -> Sequence[str]:
    try:
        body = json.loads(await call.body())
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    except Refusal as refusal:
        raise Refusal(400, refusal.text) from None
    ids = (body.get("task_ids") or []) if isinstance(body, dict) and body.keys() <= {"task_ids"} else None
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise Refusal(400, 'the body must be {"task_ids": ["…"]}')
    return ids


def _doer_of_all(verb: str, state: TaskState, name: str) -> Endpoint:
    async def do_all(call: Call) -> Response:
        of = call.inspector
        acts = {"run": of.run_all_tasks, "archive": of.archive_all_tasks, "delete": of.delete_all_tasks}
        count = await acts[verb](call.names["queue"], state, group=call.names.get("group"))
        call.notes = {"count": count}
        return _json({name: count})

    return do_all


async def cancel_all(call: Call) -> Response:
    """Cancel all active tasks of a queue."""
    queue, count = call.names["queue"], 0
    async for info in call.inspector.iter_tasks(queue, TaskState.ACTIVE, page_size=CANCELED_A_PAGE):
        await _cancel(call, queue, info.id)
        count += 1
    call.notes = {"count": count}
    return _nothing()


# Servers, schedulers, Redis -----------------------------------------------------------------------------------------


async def list_servers(call: Call) -> Response:
    """List the running servers."""
    return _json({"servers": [server_json(call.site, server) for server in await call.view.servers()]})


async def list_entries(call: Call) -> Response:
    """List the periodic tasks."""
    return _json({"entries": [entry_json(call.site, entry) for entry in await call.view.scheduler_entries()]})


async def list_events(call: Call) -> Response:
    """List the times at which a periodic task was enqueued."""
    wanted = call.names["entry"]
    if not call.view.is_of_all and wanted not in {entry.id for entry in await call.view.scheduler_entries()}:
        return _json({"events": []})
    events = await call.inspector.list_scheduler_enqueue_events(wanted, **_page(call))
    return _json({"events": [event_json(event) for event in events]})


async def redis_info(call: Call) -> Response:
    """Describe Redis; for a cluster, also on which node each queue is."""
    is_cluster, info = call.site.is_cluster, await call.redis_info()
    return _json(
        {
            "address": call.inspector.where,
            "info": dict(info),
            "raw_info": "".join(f"{name}:{value}\r\n" for name, value in info.items()),
            "cluster": is_cluster,
            "raw_cluster_nodes": "",
            "queue_locations": await _locations(call) if is_cluster else None,
        }
    )


async def _locations(call: Call) -> list[dict[str, Any]]:
    return [
        {
            "queue": name,
            "keyslot": await call.inspector.cluster_key_slot(name),
            "nodes": [node.addr for node in await call.inspector.cluster_nodes(name)],
        }
        for name in await call.view.queues()
    ]


async def get_metrics(call: Call) -> Response:
    """Query Prometheus for the nine series on asynqmon's page of metrics."""
    try:
        asked = dict(call.request.query_params)
        if not call.view.is_of_all:
            wanted = set(asked.get("queues", "").split(",")) - {""}
            seen = [name for name in await call.view.queues() if "," not in name and (not wanted or name in wanted)]
            asked["queues"] = ",".join(seen) or NO_QUEUE
        return Response(await metrics(call.site.prometheus, asked), media_type="application/json")
    except ValueError as error:
        raise Refusal(400, f"invalid query parameter: {error}") from None
    except OSError as error:
        return PlainTextResponse(f"failed to fetch from Prometheus: {error}", 500)


# The table ----------------------------------------------------------------------------------------------------------

_NAMES: Final[Mapping[str, tuple[str, str, str]]] = {
    "run": ("pending_ids", "error_ids", "scheduled"),
    "archive": ("archived_ids", "error_ids", "archived"),
    "cancel": ("canceled_ids", "error_ids", ""),
    "delete": ("deleted_ids", "failed_ids", "deleted"),
}
"""The names in a reply for the tasks that were done, the tasks that failed, and the count of all tasks done."""
_OF_STATES: Final[Mapping[TaskState, tuple[str, ...]]] = {
    TaskState.ACTIVE: ("cancel",),
    TaskState.PENDING: ("delete", "archive"),
    TaskState.SCHEDULED: ("delete", "run", "archive"),
    TaskState.RETRY: ("delete", "run", "archive"),
    TaskState.ARCHIVED: ("delete", "run"),
    TaskState.COMPLETED: ("delete",),
    TaskState.AGGREGATING: ("delete", "run", "archive"),
}


def _routes_of_states() -> Iterator[Route]:
    for state, verbs in _OF_STATES.items():
        group = "/groups/{group}" if state is TaskState.AGGREGATING else ""
        tasks = f"/api/queues/{{queue}}{group}/{state.value}_tasks"
        yield Route("GET", tasks, _lister(state))
        for verb in verbs:
            action = f"task.{verb}"
            done, failed, count = _NAMES[verb]
            deletes = verb == "delete"
            yield Route("POST", f"{tasks}:batch_{verb}", _doer_of_some(verb, done, failed), action)
            all_of_them = cancel_all if verb == "cancel" else _doer_of_all(verb, state, count)
            yield Route("DELETE" if deletes else "POST", f"{tasks}:{verb}_all", all_of_them, action)
            one = f"{tasks}/{{id}}" if deletes else f"{tasks}/{{id}}:{verb}"
            yield Route("DELETE" if deletes else "POST", one, _doer(verb), action)


ROUTES: Final = [
    Route("GET", "/api/queues", list_queues),
    Route("POST", "/api/queues/{queue}:pause", pause_queue, "queue.pause"),
    Route("POST", "/api/queues/{queue}:resume", resume_queue, "queue.resume"),
    Route("GET", "/api/queues/{queue}", get_queue),
    Route("DELETE", "/api/queues/{queue}", delete_queue, "queue.delete"),
    Route("GET", "/api/queue_stats", queue_stats),
    *_routes_of_states(),
    Route("GET", "/api/queues/{queue}/tasks/{id}", get_task),
    Route("GET", "/api/queues/{queue}/groups", list_groups),
    Route("GET", "/api/servers", list_servers),
    Route("GET", "/api/scheduler_entries", list_entries),
    Route("GET", "/api/scheduler_entries/{entry}/enqueue_events", list_events),
    Route("GET", "/api/redis_info", redis_info),
    Route("GET", "/api/metrics", get_metrics),
]
"""The paths of asynqmon below ``/api``."""
