"""The pages that only show data; each has a URL and works without JavaScript."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from starlette.responses import RedirectResponse, Response, StreamingResponse

from fastq.common.states import TaskState
from fastq.cron.parse import parse
from fastq.cron.words import is_tick
from fastq.errors import QueueNotFoundError, SchedulerEntryNotFoundError, TaskNotFoundError
from fastq.info import TaskHead
from fastq.inspector import DailyStats, GroupInfo, QueueInfo, ServerInfo
from fastq.inspector.fields import QUEUE, faced
from fastq.inspector.jobs import may as is_possible
from fastq.text.fields import text_of
from fastq.web.acting import ACTING, VERBS, did_of
from fastq.web.charts import CHARTS
from fastq.web.doctor import DOCTOR
from fastq.web.enqueueing import ENQUEUEING
from fastq.web.history import HISTORY, bars_of
from fastq.web.lanes import ACTING_ON_LANES, LANES
from fastq.web.orders import JOBS
from fastq.web.payloads import shown
from fastq.web.problems import problems_of
from fastq.web.redaction import HIDDEN
from fastq.web.render import asset, page
from fastq.web.search import SEARCHING, query_for
from fastq.web.settings import SETTINGS
from fastq.web.site import Call, Refusal, Route, name_in_path
from fastq.web.streaming import events_of
from fastq.web.view import PIECE_BYTES
from fastq.wire.messages import SchedulerEntry, WorkerInfo

PAGE_SIZE: Final = 25
MOST_A_PAGE: Final = 200
MOST_PAGES: Final = 10**9
SIZES: Final = (25, 100, 200)
GROUPS_A_PAGE: Final = 100
EVENTS: Final = 50
UPCOMING: Final = 5
LATELY: Final = timedelta(hours=1)
_FIRST: Final = (
    TaskState.ACTIVE,
    TaskState.PENDING,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.SCHEDULED,
    TaskState.AGGREGATING,
    TaskState.COMPLETED,
)


_NEWEST_FIRST: Final = (TaskState.ARCHIVED, TaskState.COMPLETED)
"""The states whose tasks are listed newest first, since users look for what has happened last."""


def error_page(call: Call, status: int, text: str) -> Response:
    """Return a page with an error."""
    title = _TITLES.get(status, "This did not work")
    return page(call, "error.jinja", status, title=title, text=text, section="", may_pass=status in (429, 503))


_TITLES: Final = {
    400: "This request makes no sense",
    403: "You may not do this",
    404: "There is nothing here",
    405: "This is not possible here",
    409: "This did not work",
    429: "Too much at once",
    503: "Redis does not answer",
}


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue in the list: its tasks, its last days, and how many servers serve it."""

    info: QueueInfo
    days: Sequence[DailyStats]
    servers: int


async def overview(call: Call) -> Response:
    """Show the problems, then all queues."""
    infos, servers = await asyncio.gather(call.view.queue_infos(), call.view.servers())
    days = await call.site.past.days(call.inspector, infos)
    lately = await call.site.past.lately(call.inspector, infos)
    rows = [QueueRow(info, days[info.queue], _count(servers, info.queue)) for info in infos]
    return page(
        call,
        "overview.jinja",
        title="Queues",
        section="queues",
        rows=rows,
        servers=servers,
        problems=problems_of(infos, servers, lately),
        totals={state.value: sum(getattr(info, state.value) for info in infos) for state in TaskState},
        processed=sum(info.processed for info in infos),
        failed=sum(info.failed for info in infos),
        most=max((info.size for info in infos), default=0),
    )


def _count(servers: Sequence[ServerInfo], queue: str) -> int:
    return sum(server.status == "active" and queue in server.queues for server in servers)


async def queue(call: Call) -> Response:
    """Redirect to the page of the first state in which the queue has tasks."""
    info = await _info(call)
    state = next((state for state in _FIRST if getattr(info, state.value)), TaskState.ACTIVE)
    return RedirectResponse(f"{call.base}/queues/{name_in_path(info.queue)}/{state.value}", 303)


async def _info(call: Call) -> QueueInfo:
    try:
        return await call.view.queue_info(call.names["queue"])
    except QueueNotFoundError as error:
        raise Refusal(404, str(error)) from None


async def tasks(call: Call) -> Response:
    """Show a queue, and the tasks of one of its states."""
    state = call.state()
    info, servers = await asyncio.gather(_info(call), call.view.servers())
    groups, after, group = await _groups(call) if state is TaskState.AGGREGATING else ([], "", "")
    size = call.number("size", PAGE_SIZE, MOST_A_PAGE)
    number = call.number("page", 1, MOST_PAGES)
    past = await call.inspector.run_history(info.queue, LATELY)
    infos: Sequence[TaskHead] = []
    count: int = getattr(info, state.value)
    if state is not TaskState.AGGREGATING:
        infos = await call.view.tasks(
            info.queue, state, page=number, page_size=size, newest_first=state in _NEWEST_FIRST
        )
    elif group:
        infos = await call.view.tasks(info.queue, state, group=group, page=number, page_size=size)
        count = await call.inspector.count_tasks(info.queue, state, group=group)
    return page(
        call,
        "queue.jinja",
        title=info.queue,
        section="queues",
        info=info,
        figures=[(title, text_of(field, info)) for _, title, field in sorted(faced(QUEUE, "web"))],
        state=state.value,
        tasks=infos,
        runs=_runs(servers, info.queue),
        servers=_count(servers, info.queue),
        problems=problems_of([info], servers, await call.site.past.lately(call.inspector, [info])),
        groups=groups,
        cursor=call.request.query_params.get("cursor", ""),
        after=after,
        group=group,
        number=number,
        size=size,
        sizes=SIZES,
        alike=query_for(info.queue, state.value) if state in (TaskState.RETRY, TaskState.ARCHIVED) else "",
        is_newest_first=state in _NEWEST_FIRST,
        count=count,
        verbs=[verb for verb in VERBS if is_possible(verb, state) and call.may(f"task.{verb}")],
        did=did_of(call),
        bars=bars_of(past.points, past.step, 1) if past.total.processed else [],
    )


async def _groups(call: Call) -> tuple[list[GroupInfo], str, str]:
    """Return a page of groups, the cursor of the next page, and the group whose tasks are shown."""
    asked = call.request.query_params
    groups, after = await call.inspector.list_groups(
        call.names["queue"], cursor=asked.get("cursor", ""), page_size=GROUPS_A_PAGE
    )
    return groups, after, asked.get("group") or (groups[0].group if groups else "")


class _Run(NamedTuple):
    """The run of a task: its server, and how many tasks run in the same call of the handler."""

    server: ServerInfo
    worker: WorkerInfo
    call: int


def _runs(servers: Sequence[ServerInfo], queue: str) -> dict[str, _Run]:
    """Return the runs of a queue's tasks by id; tasks that began in a child at the same time count as one call."""
    calls = Counter(_call(server, worker) for server in servers for worker in server.active_workers)
    return {
        worker.task_id: _Run(server, worker, calls[_call(server, worker)])
        for server in servers
        for worker in server.active_workers
        if worker.queue == queue
    }


def _call(server: ServerInfo, worker: WorkerInfo) -> tuple[object, ...]:
    return server.id, worker.task_type, worker.start_time


async def task(call: Call) -> Response:
    """Show all that is known about a task."""
    info = await _task(call)
    attempts, locks, servers = await asyncio.gather(
        call.inspector.get_failed_attempts(info.queue, info.id),
        call.inspector.get_task_locks(info.queue, info.id),
        call.view.servers(),
    )
    run = _runs(servers, info.queue).get(info.id)
    formatter = None if info.payload == HIDDEN else call.site.payload_formatter
    formatted = "" if formatter is None else formatter(info.type, info.payload)
    return page(
        call,
        "task.jinja",
        title=f"{info.type} · {info.id}",
        section="queues",
        info=info,
        payload=shown(info.payload, call.request.query_params.get("payload", ""), info.payload_size),
        formatted="" if _says(formatted, info.payload) else formatted,
        result=None
        if info.result is None
        else shown(info.result, call.request.query_params.get("result", ""), info.result_size),
        attempts=attempts[::-1],
        alike=query_for(info.queue, "retry,archived", _without_place(info.last_err)) if info.last_err else "",
        run=run,
        child=run and next((child for child in run.server.children if info.id in child.task_ids), None),
        locks=locks,
        links=[(link.name, url) for link in call.site.links if (url := link.to(info))],
        verbs=[verb for verb in VERBS if is_possible(verb, info.state) and call.may(f"task.{verb}")],
        did=did_of(call),
    )


def _without_place(error: str) -> str:
    """Return the first line of an error, without the line number, which changes with every change of the code."""
    return re.sub(r" \([^()]*:\d+\)$", "", error.partition("\n")[0])


def _says(formatted: str, payload: bytes) -> bool:
    """Return whether a formatter, such as ``shortened``, has only returned the beginning of a payload."""
    begin = formatted.removesuffix("…")
    return payload.decode(errors="replace").startswith(begin)


async def _task(call: Call) -> TaskHead:
    try:
        return await call.view.task(call.names["queue"], call.names["id"])
    except (QueueNotFoundError, TaskNotFoundError) as error:
        raise Refusal(404, f"{error}; it may be done and deleted") from None


async def payload(call: Call) -> Response:
    """Return the payload, byte for byte, as a file."""
    info = await _task(call)
    return _file(call, "payload", info.payload, info.payload_size)


async def result(call: Call) -> Response:
    """Return the result, byte for byte, as a file."""
    info = await _task(call)
    return _file(call, "result", info.result or b"", info.result_size)


def _file(call: Call, name: str, data: bytes, size: int) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}.bin"', "content-length": str(size)}
    return StreamingResponse(_parts(call, name, data, size), headers=headers, media_type="application/octet-stream")


async def _parts(call: Call, name: str, data: bytes, size: int) -> AsyncIterator[bytes]:
    """Yield a payload or a result, a MB at a time; ``data`` is its beginning, which was read already."""
    yield data
    read = call.inspector.read_payload if name == "payload" else call.inspector.read_result
    at = len(data)
    while at < size:
        part = await read(call.names["queue"], call.names["id"], at, min(PIECE_BYTES, size - at))
        if not part:
            raise TaskNotFoundError(call.names["queue"], call.names["id"])  # another payload was written meanwhile
        yield part
        at += len(part)


async def servers(call: Call) -> Response:
    """Show the running servers and the tasks that they run."""
    found = await call.view.servers()
    return page(
        call,
        "servers.jinja",
        title="Servers",
        section="servers",
        servers=found,
        running=_by_child(found),
        did=did_of(call),
    )


def _by_child(servers: Sequence[ServerInfo]) -> dict[tuple[str, int], list[WorkerInfo]]:
    """Return the running tasks of each child, by its server and process id, the oldest first."""
    running: dict[tuple[str, int], list[WorkerInfo]] = {}
    for server in servers:
        pids = {task_id: child.pid for child in server.children for task_id in child.task_ids}
        for worker in server.active_workers:
            if worker.task_id in pids:
                running.setdefault((server.id, pids[worker.task_id]), []).append(worker)
    return running


async def schedulers(call: Call) -> Response:
    """Show the periodic tasks."""
    entries = await call.view.scheduler_entries()
    return page(call, "schedulers.jinja", title="Schedulers", section="schedulers", entries=entries)


async def entry(call: Call) -> Response:
    """Show a periodic task, and when it was enqueued."""
    wanted = call.names["entry"]
    entries, events = await asyncio.gather(
        call.view.scheduler_entries(),
        call.inspector.list_scheduler_enqueue_events(wanted, page_size=EVENTS),
    )
    found = next((entry for entry in entries if entry.id == wanted), None)
    if found is None and (not events or not call.view.is_of_all):
        raise Refusal(404, str(SchedulerEntryNotFoundError(wanted)))
    payload = None if found is None else shown(found.task_payload)
    title = found.task_type if found else wanted
    return page(
        call,
        "entry.jinja",
        title=title,
        section="schedulers",
        entry=found,
        events=events,
        payload=payload,
        upcoming=[] if found is None else _upcoming(found),
    )


def _upcoming(found: SchedulerEntry) -> list[datetime]:
    """Return the next times at which a periodic task is due; only the published time if its spec cannot be computed."""
    times = [found.next_enqueue_time] if found.next_enqueue_time else []
    try:
        schedule = parse(found.spec)
    except ValueError:
        return times
    if times and not is_tick(schedule, times[0]):
        return times  # a Go scheduler has a time zone that it does not publish
    while times and len(times) < UPCOMING and (after := schedule.next(times[-1])):
        times.append(after)
    return times


async def redis(call: Call) -> Response:
    """Show Redis."""
    is_cluster, info = call.site.is_cluster, await call.redis_info()
    nodes = await call.inspector.all_cluster_nodes() if is_cluster else []
    return page(call, "redis.jinja", title="Redis", section="redis", info=info, is_cluster=is_cluster, nodes=nodes)


_SHOWING: Final = [
    Route("GET", "/", overview, live_s=2),
    Route("GET", "/static/{version}/{name}", asset),
    Route("GET", "/queues/{queue}", queue),
    LANES,
    Route("GET", "/queues/{queue}/{state}", tasks, live_s=2),
    Route("GET", "/queues/{queue}/tasks/{id}", task, live_s=2),
    Route("GET", "/queues/{queue}/tasks/{id}/payload", payload),
    Route("GET", "/queues/{queue}/tasks/{id}/result", result),
    Route("GET", "/servers", servers, live_s=2),
    Route("GET", "/schedulers", schedulers, live_s=2),
    Route("GET", "/schedulers/{entry}", entry),
    Route("GET", "/redis", redis, live_s=2),
    *SEARCHING,
    *JOBS,
    *DOCTOR,
    *HISTORY,
    *CHARTS,
    *SETTINGS,
]
ROUTES: Final = [
    *_SHOWING,
    Route("GET", "/events", events_of(_SHOWING)),
    *ENQUEUEING,
    *ACTING_ON_LANES,
    *ACTING,
]
