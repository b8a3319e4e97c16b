"""The form that enqueues a task, empty or filled from a task or periodic task; and routes that change one task."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from fastq.app.function import TaskFunction
from fastq.common.states import TaskState
from fastq.common.times import read_duration, read_time
from fastq.errors import FastqError, QueueNotFoundError, SchedulerEntryNotFoundError, TaskNotFoundError
from fastq.info import TaskHead, TaskInfo
from fastq.inspector import TaskFilter
from fastq.options import OPTIONS, OptionKind, OptionSpec
from fastq.task import Task
from fastq.text.human import clean
from fastq.web.orders import Order, begin
from fastq.web.render import page
from fastq.web.site import MOST_BODY_BYTES, Call, Refusal, Route, name_in_path
from fastq.web.typed import MisfitsError, inputs_of, task_of

MOST_EDITED: Final = 64 * 1024
OUTCOMES: Final[Mapping[str, str]] = {"retry": "task.cancel", "archive": "task.archive", "delete": "task.delete"}
"""How a canceled task may end, and the action that the user needs the right to for it."""
_OPTION: Final = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_GO_NAMES: Final = {spec.go: spec for spec in OPTIONS if spec.go}
_MORE: Final = frozenset({"queue", "headers"})
"""The options that have fields of their own in the form; the list of further options leaves them out."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What a form shows: the values of its fields, and the payload, None if it cannot be edited as text.

    ``source`` has the hidden fields, which name the task or periodic task whose payload is used, or the typed task
    whose arguments are fields. ``wrong`` has the error of each bad field.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    payload: str | None = ""
    source: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    wrong: Mapping[str, str] = field(default_factory=dict)


def _editable(raw: bytes, seen: bytes) -> str | None:
    """Return a payload as text for a form; None if the form would change it, or would show redacted values."""
    if raw != seen or len(raw) > MOST_EDITED or b"\r" in raw or b"\x00" in raw:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


async def _source(call: Call, given: Mapping[str, str]) -> tuple[bytes, Filled]:
    """Return the payload of the task or entry from which a form is filled, and the filled form."""
    if name := given.get("task"):
        _typed(call, name)
        return b"", Filled({"type": name, "queue": given.get("queue", "")}, source={"task": name})
    if entry_id := given.get("entry"):
        return await _of_entry(call, entry_id)
    if given.get("id"):
        call.view.require(given.get("of", ""))
        info: TaskInfo = await _head(call, given.get("of", ""), given["id"])
        seen = call.site.redaction.task(info)
        is_whole = not (isinstance(info, TaskHead) and info.is_cut)
        if not is_whole and call.request.method == "POST":
            info = await call.inspector.get_task_info(info.queue, info.id)
        hidden = dict(info.headers) != dict(seen.headers)
        return info.payload, Filled(
            {"type": info.type, **_values_of(info), **({} if hidden else {"headers": _headers_text(info.headers)})},
            _editable(info.payload, seen.payload) if is_whole else None,
            {"of": info.queue, "id": info.id},
            ("Headers are left out, since some are redacted.",) if hidden else (),
        )
    return b"", Filled({"type": given.get("type", ""), "queue": given.get("queue", "")})


def _tasks(call: Call) -> dict[str, TaskFunction[..., Any]]:
    """Return the typed tasks whose default queue the user may see."""
    app = call.site.app
    tasks = {} if app is None else app.tasks
    return {name: task for name, task in sorted(tasks.items()) if call.view.sees(_queue_of(task))}


def _queue_of(task: TaskFunction[..., Any]) -> str:
    queue: str = task.task_options.get("queue", "default")
    return queue


def _typed(call: Call, name: str) -> TaskFunction[..., Any]:
    try:
        return _tasks(call)[name]
    except KeyError:
        raise Refusal(404, f"the app has no typed task {name!r}") from None


def _values_of(info: TaskInfo) -> dict[str, str]:
    values = {"queue": info.queue, "max_retry": str(info.max_retry), "group": info.group}
    for name, span in (("timeout", info.timeout), ("retention", info.retention)):
        values[name] = f"{span.total_seconds():.15g}s" if span else ""
    return values


def _headers_text(headers: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in headers.items())


async def _of_entry(call: Call, entry_id: str) -> tuple[bytes, Filled]:
    seen = next((each for each in await call.view.scheduler_entries() if each.id == entry_id), None)
    raw = next((each for each in await call.inspector.scheduler_entries() if each.id == entry_id), None)
    if seen is None or raw is None:
        raise SchedulerEntryNotFoundError(entry_id)
    values, notes = {"type": raw.task_type}, []
    for text in raw.enqueue_options:
        match = _OPTION.fullmatch(text)
        spec = _GO_NAMES.get(match[1]) if match else None
        if match is None or spec is None or spec.kind in (OptionKind.TIME, OptionKind.HEADERS):
            notes.append(f"{clean(text)} is left out.")
        elif spec.name != "process_in":
            values[spec.name] = _text_of(spec, match[2])
    return raw.task_payload, Filled(values, _editable(raw.task_payload, seen.task_payload), {"entry": entry_id}, notes)


def _text_of(spec: OptionSpec, form: str) -> str:
    if spec.kind is not OptionKind.TEXT:
        return form
    try:
        return str(json.loads(form))
    except ValueError:  # Go quotes some characters differently
        return form.strip('"')


def _show(call: Call, filled: Filled, *, wrong: str = "", edits: TaskInfo | None = None) -> Response:
    typed = _typed(call, filled.source["task"]) if "task" in filled.source else None
    return page(
        call,
        "enqueue.jinja",
        400 if wrong else 200,
        title=f"Edit {edits.id}" if edits else "Enqueue a task",
        section="queues",
        form=filled,
        wrong=wrong,
        edits=edits,
        tasks=[] if edits or (filled.source and typed is None) else list(_tasks(call)),
        typed=typed,
        about=typed and (typed.__doc__ or "").strip().partition("\n\n")[0],
        inputs=[] if typed is None else inputs_of(typed),
        is_open=any(
            filled.values.get(spec.name) or filled.wrong.get(spec.name) for spec in OPTIONS if spec.name != "queue"
        ),
        queue="default" if typed is None else _queue_of(typed),
        options=[spec for spec in OPTIONS if spec.name not in _MORE],
    )


async def form(call: Call) -> Response:
    """Show the form."""
    _require(call, "task.enqueue", 404)
    try:
        return _show(call, (await _source(call, call.request.query_params))[1])
    except (QueueNotFoundError, TaskNotFoundError, SchedulerEntryNotFoundError) as error:
        raise Refusal(404, str(error)) from None


def _require(call: Call, action: str, status: int = 403) -> None:
    if not call.may(action):
        raise Refusal(status, f"{call.user.name or 'you'} may not do this: {action}")


def _sent(fields: Mapping[str, str]) -> bytes | None:
    """Return the payload from the form's text field, with the CRLF that browsers send turned into LF."""
    return fields["payload"].replace("\r\n", "\n").encode() if "payload" in fields else None


_READ: Final[Mapping[OptionKind, Callable[[str], Any]]] = {
    OptionKind.DURATION: read_duration,
    OptionKind.TIME: read_time,
    OptionKind.NUMBER: int,
    OptionKind.HEADERS: lambda text: dict(_header(line) for line in text.splitlines() if line.strip()),
}


def _header(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals:
        raise ValueError(f"{line!r} is not of the form NAME=VALUE")
    return name.strip(), value


def _options_of(fields: Mapping[str, str]) -> dict[str, Any]:
    options, wrong = {}, {}
    for spec in OPTIONS:
        text = fields.get(spec.name, "").strip()
        if text:
            try:
                options[spec.name] = _READ.get(spec.kind, str)(text)
                Task("x", **{spec.name: options[spec.name]})
            except (ValueError, TypeError) as error:
                wrong[spec.name] = str(error)
    if wrong:
        raise MisfitsError(wrong)
    return options


def _task_of(call: Call, fields: Mapping[str, str], payload: bytes | None) -> Task:
    """Return the task, without the options in the form; ``MisfitsError`` has the errors of all bad fields."""
    if not (name := fields.get("task")):
        return Task(fields.get("type", ""), payload or None)
    typed = {key: text.replace("\r\n", "\n") for key, text in fields.items()}
    return task_of(_typed(call, name), typed)


async def enqueue(call: Call) -> Response:
    """Enqueue the task that the form describes."""
    fields = dict(await call.form())
    payload, filled = await _source(call, fields)
    if (typed := _sent(fields)) is not None:
        payload = typed
    name = fields.get("task")
    queue = fields.get("queue", "").strip() or (_queue_of(_typed(call, name)) if name else "default")
    if not call.view.sees(queue):
        raise Refusal(403, f"you do not see the queue {queue!r}")
    try:
        info = await call.site.client.enqueue(_task_of(call, fields, payload), **_options_of(fields))
    except (ValueError, TypeError, FastqError) as error:
        call.notes = None
        text = filled.payload if typed is None else typed.decode()
        wrong = error.wrong if isinstance(error, MisfitsError) else {}
        return _show(call, Filled(fields, text, filled.source, wrong=wrong), wrong=str(error))
    call.notes = {"queue": info.queue, "tasks": [info.id], "count": 1}
    return RedirectResponse(f"{_path(call, info.queue, info.id)}?did=enqueue&done=1", 303)


def _path(call: Call, queue: str, task_id: str) -> str:
    return f"{call.base}/queues/{name_in_path(queue)}/tasks/{name_in_path(task_id)}"


async def _head(call: Call, queue: str, task_id: str) -> TaskHead:
    """Describe a task, with as much of its payload as a form can send."""
    [found] = await call.inspector.get_task_heads(queue, [task_id], MOST_BODY_BYTES)
    if found is None:
        raise TaskNotFoundError(queue, task_id)
    return found


async def _task(call: Call) -> TaskHead:
    try:
        return await _head(call, call.names["queue"], call.names["id"])
    except (QueueNotFoundError, TaskNotFoundError) as error:
        raise Refusal(404, f"{error}; it may be done and deleted") from None


async def edit(call: Call) -> Response:
    """Show the form for a new payload of a scheduled task, or store the payload that was sent."""
    _require(call, "task.edit", 404)
    info = await _task(call)
    text = None if info.is_cut else _editable(info.payload, call.site.redaction.data(info.payload))
    if info.state is not TaskState.SCHEDULED or text is None:
        raise Refusal(409, "only payloads of scheduled tasks that are text, and all of it shown, can be edited")
    if call.request.method != "POST":
        return _show(call, Filled({"type": info.type}, text), edits=info)
    typed = _sent(dict(await call.form()))
    if typed is None:
        raise Refusal(400, "the form has no payload")
    await call.inspector.update_task_payload(info.queue, info.id, typed)
    call.notes = {"bytes": len(typed)}
    return RedirectResponse(f"{_path(call, info.queue, info.id)}?did=edit&done=1", 303)


async def cancel(call: Call) -> Response:
    """Ask the server of a task to stop it, and to end the task in the chosen way."""
    fields = dict(await call.form())
    outcome = fields.get("outcome", "")
    if outcome not in OUTCOMES:
        raise Refusal(400, f"outcome={outcome!r}: write one of {', '.join(OUTCOMES)}")
    _require(call, OUTCOMES[outcome])
    info = await _task(call)
    if info.state is not TaskState.ACTIVE:
        raise Refusal(409, f"nothing was done: the task is {info.state}, no longer active")
    if outcome == "delete" and fields.get("sure") != "yes":
        call.notes = None
        return page(call, "confirm_cancel.jinja", title="Cancel", section="queues", info=info)
    await call.inspector.cancel_processing(info.id, outcome, queue=info.queue)
    call.notes = {"outcome": f"told to {outcome}"}
    return RedirectResponse(f"{_path(call, info.queue, info.id)}?did=cancel&done=1", 303)


async def move(call: Call) -> Response:
    """Move a task to another queue."""
    info = await _task(call)
    target = dict(await call.form()).get("to", "").strip()
    if not target:
        raise Refusal(400, "to which queue? the form names none")
    if not call.view.sees(target):
        raise Refusal(403, f"you do not see the queue {target!r}")
    where = TaskFilter(test=lambda each: each.id == info.id)
    plan = await call.inspector.plan_move(info.queue, target, states=[info.state], where=where)
    order = Order("move", plan.job, f"{call.base}/find?{urlencode({'id': info.id})}", frozenset({info.queue, target}))
    return await begin(call, order)


ENQUEUEING: Final = [
    Route("GET", "/enqueue", form),
    Route("POST", "/enqueue", enqueue, "task.enqueue"),
    Route("GET", "/queues/{queue}/tasks/{id}/edit", edit),
    Route("POST", "/queues/{queue}/tasks/{id}/edit", edit, "task.edit"),
    Route("POST", "/queues/{queue}/tasks/{id}/cancel", cancel, "task.cancel"),
    Route("POST", "/queues/{queue}/tasks/{id}/move", move, "task.move"),
]
"""The form, and the routes that change one task."""
