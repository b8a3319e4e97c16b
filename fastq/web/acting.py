"""The routes to which the pages' forms are sent. Actions that delete something ask for confirmation first."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from fastq.common.states import TaskState
from fastq.errors import BrokerError, QueueNotFoundError, ServerNotListeningError
from fastq.inspector import ServerInfo, TaskFilter
from fastq.inspector.jobs import Job, Place, canceling, doing, doing_all, doing_where
from fastq.web.orders import Order, ask, begin, delete_as_job, did, require_possible
from fastq.web.render import page
from fastq.web.site import Call, Endpoint, Refusal, Route, name_in_path

VERBS: Final = ("run", "cancel", "archive", "delete")
OTHER_VERBS: Final = ("move", "enqueue", "edit", "pause", "resume", "quiet", "stop")
MOST_CHOSEN: Final = 1_000
ORDER_S: Final = 1.0
"""How long to wait for a server's new state, so that the page shows it."""


def _doer(verb: str) -> Endpoint:
    async def act(call: Call) -> Response:
        fields = await call.form()
        given = dict(fields)
        state = call.state()
        require_possible(verb, state)
        ids = [given["only"]] if "only" in given else [value for name, value in fields if name == "id"]
        is_all = "all" in given
        if not is_all and not ids:
            raise Refusal(400, "no task is chosen; tick some, then press the button again")
        if len(ids) > MOST_CHOSEN:
            raise Refusal(400, f"{len(ids):,} tasks are chosen, and at most {MOST_CHOSEN:,} can be at once")
        job = await (
            _of_all(call, verb, state, given.get("group") or None) if is_all else _of_some(call, verb, state, ids)
        )
        order = Order(verb, job, _list(call), frozenset({call.names["queue"]}))
        if (job.destroys or is_all) and (question := ask(call, order, fields)):
            return question
        group = {"group": given["group"]} if given.get("group") else {}
        if is_all:
            return await begin(call, order, group)
        done = await call.inspector.carry_out(job)
        call.notes = {"tasks": ids, "count": done.done, "failed": done.failures}
        to = given.get("to") == "task" and verb != "delete" and len(ids) == 1
        where = f"{_queue(call)}/tasks/{name_in_path(ids[0])}" if to else _list(call)
        return RedirectResponse(f"{where}?{did(verb, done, group, missing=len(ids) - job.total)}", 303)

    return act


async def _of_all(call: Call, verb: str, state: TaskState, group: str | None) -> Job:
    queue = call.names["queue"]
    count = await call.inspector.count_tasks(queue, state, group=group)
    if verb != "cancel":
        return doing_all(verb, Place(queue, state, group), count)
    return doing_where(verb, [Place(queue, state)], TaskFilter(), count)


async def _of_some(call: Call, verb: str, state: TaskState, ids: Sequence[str]) -> Job:
    """Return a job for the tasks that are still in this state."""
    try:
        found = await call.inspector.get_task_heads(call.names["queue"], ids, 0)
    except QueueNotFoundError:
        found = []
    infos = [info for info in found if info is not None and info.state is state]
    if not infos:
        raise Refusal(409, f"nothing was done: what was chosen is no longer {state}")
    return canceling(infos) if verb == "cancel" else doing(verb, infos)


def _queue(call: Call) -> str:
    return f"{call.base}/queues/{name_in_path(call.names['queue'])}"


def _list(call: Call) -> str:
    return f"{_queue(call)}/{call.names['state']}"


def did_of(call: Call) -> tuple[str, int, int] | None:
    """Return what the last action did, which the URL says. Only numbers and known verbs are accepted from the URL."""
    verb = call.request.query_params.get("did", "")
    if verb not in VERBS and verb not in OTHER_VERBS:
        return None
    count, failed = (int(text) if text.isdecimal() else 0 for text in (_query(call, "done"), _query(call, "failed")))
    return verb, count, failed


def _query(call: Call, name: str) -> str:
    return call.request.query_params.get(name, "")[:9]


async def pause(call: Call) -> Response:
    """Pause a queue."""
    await call.inspector.pause_queue(call.names["queue"], ahead=False)
    return await _back(call, "pause")


async def resume(call: Call) -> Response:
    """Resume a queue."""
    await call.inspector.unpause_queue(call.names["queue"])
    return await _back(call, "resume")


async def _back(call: Call, verb: str) -> Response:
    """Redirect to the list of queues, or to the page of the queue if the form was on it."""
    state = dict(await call.form()).get("state", "")
    is_state = state in {each.value for each in TaskState}
    return RedirectResponse(f"{_queue(call)}/{state}?did={verb}" if is_state else f"{call.base}/", 303)


async def delete(call: Call) -> Response:
    """Delete a queue, with its tasks if ``force`` is checked in the form."""
    given = dict(await call.form())
    name = call.names["queue"]
    if given.get("sure") != "yes":
        call.notes = None
        info = await call.view.queue_info(name)
        return page(call, "confirm_queue.jinja", title="delete", section="queues", info=info, back=_queue(call))

    work, quick = await delete_as_job(call, force="force" in given)
    return RedirectResponse(f"{call.base}/" if quick else f"{call.base}/jobs/{work.id}", 303)


async def _server(call: Call) -> ServerInfo:
    """Return a server, if the user sees all of its queues."""
    found = next((each for each in await call.inspector.servers() if each.id == call.names["server"]), None)
    if found is None or not all(map(call.view.sees, found.queues)):
        raise Refusal(404, f"no running server has the id {call.names['server']!r}")
    return found


def _teller(verb: str) -> Endpoint:
    async def tell(call: Call) -> Response:
        server = await _server(call)
        if dict(await call.form()).get("sure") != "yes":
            call.notes = None
            return page(call, "confirm_server.jinja", title=verb, section="servers", server=server, verb=verb)
        status = "quiet" if verb == "quiet" else "stopping"
        call.notes = {"host": server.host, "pid": server.pid}
        try:
            await (call.inspector.quiet_server if verb == "quiet" else call.inspector.stop_server)(server.id)
            await call.inspector.wait_for_server(server.id, status, timeout=ORDER_S)
        except ServerNotListeningError:
            signal = "SIGTSTP" if verb == "quiet" else "SIGTERM"
            text = f"this server takes no orders, as asynq's do not; send {signal} to {server.pid} on {server.host}"
            raise Refusal(409, text) from None
        except TimeoutError as error:
            if isinstance(error, BrokerError):
                raise
            # The server has received the message; a later update of the page will show the new state.
        return RedirectResponse(f"{call.base}/servers?{urlencode({'did': verb})}", 303)

    return tell


ACTING: Final = [
    *(Route("POST", f"/servers/{{server}}/{verb}", _teller(verb), f"server.{verb}") for verb in ("quiet", "stop")),
    Route("POST", "/queues/{queue}/pause", pause, "queue.pause"),
    Route("POST", "/queues/{queue}/resume", resume, "queue.resume"),
    Route("POST", "/queues/{queue}/delete", delete, "queue.delete"),
    *(Route("POST", f"/queues/{{queue}}/{{state}}/{verb}", _doer(verb), f"task.{verb}") for verb in VERBS),
]
"""The routes to which forms are sent; each changes something, or asks for confirmation."""
