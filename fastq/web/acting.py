"""The forms of the pages: actions on tasks and queues, with a question before those that destroy something."""

import asyncio
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from fastq.errors import QueueNotFoundError, TaskNotFoundError
from fastq.info import TaskInfo
from fastq.inspector.jobs import Job, Place, canceling, doing, doing_all, may
from fastq.states import TaskState
from fastq.web.render import page
from fastq.web.site import Call, Endpoint, Refusal, Route, name_in_path

__all__ = ["ACTING", "VERBS"]

VERBS: Final = ("run", "cancel", "archive", "delete")
MOST_CHOSEN: Final = 1_000


def _doer(verb: str) -> Endpoint:
    async def act(call: Call) -> Response:
        fields = await call.form()
        given = dict(fields)
        state = _state(call, verb)
        ids = [given["only"]] if "only" in given else [value for name, value in fields if name == "id"]
        is_all = "all" in given
        if not is_all and not ids:
            raise Refusal(400, "no task is chosen; tick some, then press the button again")
        if len(ids) > MOST_CHOSEN:
            raise Refusal(400, f"{len(ids):,} tasks are chosen, and at most {MOST_CHOSEN:,} can be at once")
        job = await (
            _of_all(call, verb, state, given.get("group") or None) if is_all else _of_some(call, verb, state, ids)
        )
        if (job.destroys or is_all) and given.get("sure") != "yes":
            call.notes = None
            return page(
                call, "confirm.jinja", title=verb, section="queues", job=job, verb=verb, fields=fields, back=_list(call)
            )
        done = await call.inspector.carry_out(job)
        chosen = {} if is_all else {"tasks": ids}
        call.notes = {**chosen, "count": done.done, "failed": done.failures}
        to = given.get("to") == "task" and verb != "delete" and len(ids) == 1
        where = f"{_queue(call)}/tasks/{name_in_path(ids[0])}" if to else _list(call)
        asked = {"did": verb, "done": done.done, "failed": len(done.failures) + (0 if is_all else len(ids) - job.total)}
        group = {"group": given["group"]} if given.get("group") else {}
        return RedirectResponse(f"{where}?{urlencode({**asked, **group})}", 303)

    return act


def _state(call: Call, verb: str) -> TaskState:
    try:
        state = TaskState(call.names["state"])
    except ValueError:
        raise Refusal(404, f"there is no state {call.names['state']!r}") from None
    if not may(verb, state):
        raise Refusal(400, f"{verb} is not possible for {state} tasks")
    return state


async def _of_all(call: Call, verb: str, state: TaskState, group: str | None) -> Job:
    queue = call.names["queue"]
    count = await call.inspector.count_tasks(queue, state, group=group)
    if verb != "cancel":
        return doing_all(verb, Place(queue, state, group), count)
    infos = [info async for info in call.inspector.iter_tasks(queue, state)]
    return canceling(infos[:MOST_CHOSEN])


async def _of_some(call: Call, verb: str, state: TaskState, ids: Sequence[str]) -> Job:
    """Plan to act on those of the tasks that are still in this state."""
    found = await asyncio.gather(*(_find(call, task_id) for task_id in ids))
    infos = [info for info in found if info is not None and info.state is state]
    if not infos:
        raise Refusal(409, f"nothing was done: what was chosen is no longer {state}")
    return canceling(infos) if verb == "cancel" else doing(verb, infos)


async def _find(call: Call, task_id: str) -> TaskInfo | None:
    try:
        return await call.inspector.get_task_info(call.names["queue"], task_id)
    except (QueueNotFoundError, TaskNotFoundError):
        return None


def _queue(call: Call) -> str:
    return f"{call.base}/queues/{name_in_path(call.names['queue'])}"


def _list(call: Call) -> str:
    return f"{_queue(call)}/{call.names['state']}"


async def pause(call: Call) -> Response:
    """Pause a queue."""
    await call.inspector.pause_queue(call.names["queue"], ahead=False)
    return await _back(call, "pause")


async def resume(call: Call) -> Response:
    """Resume a queue."""
    await call.inspector.unpause_queue(call.names["queue"])
    return await _back(call, "resume")


async def _back(call: Call, verb: str) -> Response:
    """Lead back to the list of queues, or to the queue's own page if the form was there."""
    state = dict(await call.form()).get("state", "")
    is_state = state in {each.value for each in TaskState}
    return RedirectResponse(f"{_queue(call)}/{state}?did={verb}" if is_state else f"{call.base}/", 303)


async def delete(call: Call) -> Response:
    """Delete a queue, with its tasks if that was said."""
    given = dict(await call.form())
    name = call.names["queue"]
    if given.get("sure") != "yes":
        call.notes = None
        info = await call.inspector.get_queue_info(name)
        return page(call, "confirm_queue.jinja", title="delete", section="queues", info=info, back=_queue(call))
    call.notes = {"force": "force" in given}
    await call.inspector.delete_queue(name, force="force" in given)
    return RedirectResponse(f"{call.base}/", 303)


ACTING: Final = [
    Route("POST", "/queues/{queue}/pause", pause, "queue.pause"),
    Route("POST", "/queues/{queue}/resume", resume, "queue.resume"),
    Route("POST", "/queues/{queue}/delete", delete, "queue.delete"),
    *(Route("POST", f"/queues/{{queue}}/{{state}}/{verb}", _doer(verb), f"task.{verb}") for verb in VERBS),
]
"""The paths to which forms are sent; each changes something, or asks whether it should."""
