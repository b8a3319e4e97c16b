"""The search over all queues and states, and the actions on the tasks that it has found."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from fastq.common.states import TaskState
from fastq.errors import QueueNotFoundError, TaskNotFoundError
from fastq.info import TaskInfo
from fastq.inspector import Progress, QueueInfo, TaskFilter
from fastq.inspector.jobs import Place, doing_where
from fastq.inspector.jobs import may as is_possible
from fastq.web.acting import VERBS, did_of
from fastq.web.orders import Order, ask, begin
from fastq.web.payloads import preview
from fastq.web.query import FIELDS, Query, Subject, pattern_of
from fastq.web.render import page
from fastq.web.site import Call, Endpoint, Refusal, Route, name_in_path
from fastq.web.work import Work

SETTLE_S: Final = 0.5
MOST_OF_A_TEXT: Final = 300
"""How many characters of a type and of an error are kept."""
MOST_SHOWN: Final = 200
MOST_KINDS: Final = 1_000
KINDS_SHOWN: Final = 20
OTHERS: Final = "others"
BATCH: Final = 50
"""How many tasks are tested in one turn."""
_NAMED: Final = re.compile(r"(?:^|\s)([a-z]{2,12}):(?!//)\S")


@dataclass(frozen=True, slots=True)
class Hit:
    """A found task, with the data for the list as it was when the task was read."""

    queue: str
    state: TaskState
    id: str
    type: str
    error: str
    preview: str
    moment: datetime | None

    @classmethod
    def of(cls, info: TaskInfo) -> "Hit":
        """Return the data of a task that the list shows."""
        error = info.last_err.partition("\n")[0][:MOST_OF_A_TEXT]
        moment = info.completed_at or info.last_failed_at or info.next_process_at
        return cls(info.queue, info.state, info.id, info.type[:MOST_OF_A_TEXT], error, preview(info.payload), moment)


@dataclass(slots=True)
class Found:
    """What a search has found: counts of all tasks by error, type, queue and state, and the first of the tasks.

    ``cut`` counts the tasks with large payloads that were not searched to the end.
    """

    count: int = 0
    cut: int = 0
    hits: list[Hit] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    places: Counter[tuple[str, TaskState]] = field(default_factory=Counter)

    def add(self, info: TaskInfo) -> None:
        """Count a task."""
        self.count += 1
        if len(self.hits) < MOST_SHOWN:
            self.hits.append(Hit.of(info))
        if info.last_err:
            _count(self.errors, pattern_of(info.last_err))
        _count(self.types, info.type[:MOST_OF_A_TEXT])
        self.places[info.queue, info.state] += 1


def _count(counts: Counter[str], name: str) -> None:
    counts[name if name in counts or len(counts) < MOST_KINDS else OTHERS] += 1


async def search(call: Call) -> Response:
    """Show what a search has found so far; the search continues while somebody has the page open."""
    text = call.request.query_params.get("q", "").strip()
    work: Work | None = None
    query: Query | None = None
    wrong = ""
    if text:
        try:
            query = Query.of(text)
            work = look(call, query)
        except ValueError as error:
            wrong = str(error)
    if work is not None:
        await work.settle(0.0 if call.is_live else SETTLE_S)
    found: Found = work.result if work is not None else Found()
    return page(
        call,
        "search.jinja",
        title=f"Search: {text}" if text else "Search",
        section="search",
        query=text,
        wrong=wrong,
        work=work,
        strange=_strange_words(text),
        fields=FIELDS,
        found=found,
        most_bytes=query and query.most_bytes,
        errors=found.errors.most_common(KINDS_SHOWN),
        types=found.types.most_common(KINDS_SHOWN),
        narrowed=lambda name, value: urlencode({"q": f"{text} {name}:{_quoted(value)}"}),
        verbs=[verb for verb in VERBS if call.may(f"task.{verb}") and _places(found, verb)],
        did=did_of(call),
        refreshes=work is not None and work.is_running,
    )


def query_for(queue: str, states: str, error: str = "") -> str:
    """Return the search for failed tasks of a queue; with ``error``, for those that failed in the same way."""
    words = [f"queue:{_quoted(queue)}", f"state:{states}"]
    return " ".join([*words, f"error:{_quoted(pattern_of(error))}"] if error else words)


def _strange_words(text: str) -> list[str]:
    """Return the words that look like fields of a search but are not, and so were searched as text."""
    names = (name for name in _NAMED.findall(text) if name not in FIELDS)
    return list(dict.fromkeys(names))


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if set(value) & set(' "\\') else value


def _key(call: Call, query: Query) -> str:
    return repr((call.owner, query.text, call.view.globs))


def look(call: Call, query: Query) -> Work:
    """Begin a search, or return the same search if it is running or has just ended."""
    key = _key(call, query)
    known = call.site.board.lookup(key)
    if call.is_live and known is not None:
        return known  # a search that has ended is not begun again while its page is open

    async def do(work: Work) -> str:
        await _walk(call, query, work)
        return ""

    work = Work(f"Search for {query.text}", call.user.name, result=Found(), owner=call.owner)
    return call.site.board.look_up(key, work, do)


async def _walk(call: Call, query: Query, work: Work) -> None:
    """Read and test all tasks, some hundreds at a time."""
    infos = [info for info in await call.view.queue_infos() if query.reaches(info.queue)]
    total = sum(getattr(info, state.value) for info in infos for state in query.states)
    looked = 0
    async for place in _all_places(call, query, infos):

        def note(progress: Progress, before: int = looked) -> None:
            nonlocal looked
            looked = before + progress.done
            work.note(Progress(max(total, looked), looked=looked))

        everything = TaskFilter()  # the tests are made below, in turns with other work
        found = call.inspector.find_tasks(place.queue, place.state, everything, group=place.group, progress=note)
        batch: list[TaskInfo] = []
        with suppress(QueueNotFoundError):  # deleted meanwhile
            async for task in found:
                batch.append(task)
                if len(batch) == BATCH:
                    await _add_those_wanted(call, query, batch, work.result)
                    batch = []
        await _add_those_wanted(call, query, batch, work.result)


async def _add_those_wanted(call: Call, query: Query, infos: Sequence[TaskInfo], found: Found) -> None:
    """Test some tasks in this search's turn; between the tests, the event loop serves pages."""
    turns, redaction = call.site.turns, call.site.redaction
    async with turns:
        for info in infos:
            subject = Subject(redaction.task(info) if query.reads_payloads else info)
            found.cut += query.reads_payloads and len(info.payload) > query.most_bytes
            await turns.breathe()
            for test in query.tests:
                if not test(subject):
                    break
                await turns.breathe()
            else:
                found.add(subject.info if query.reads_payloads else redaction.task(info))
            await turns.breathe()


async def _all_places(call: Call, query: Query, infos: Sequence[QueueInfo]) -> AsyncIterator[Place]:
    for state in query.states:
        for info in infos:
            if state is TaskState.AGGREGATING and info.groups:
                async for group in _all_groups(call, info.queue):
                    yield Place(info.queue, state, group)
            elif getattr(info, state.value):
                yield Place(info.queue, state)


async def _all_groups(call: Call, queue: str) -> AsyncIterator[str]:
    cursor: str | None = None
    while cursor != "":
        groups, cursor = await call.inspector.list_groups(queue, cursor=cursor or "")
        for each in groups:
            yield each.group


def _test(call: Call, query: Query) -> Callable[[TaskInfo], bool]:
    redaction = call.site.redaction
    if not query.reads_payloads:
        return query.wants
    return lambda info: query.wants(redaction.task(info))


def _places(found: Found, verb: str) -> list[Place]:
    return [Place(queue, state) for queue, state in found.places if is_possible(verb, state)]


def _doer(verb: str) -> Endpoint:
    async def act(call: Call) -> Response:
        fields = await call.form()
        query = Query.of(dict(fields).get("q", ""))
        work = call.site.board.lookup(_key(call, query))
        places = [] if work is None else _places(work.result, verb)
        if work is None or not places:
            raise Refusal(409, f"nothing was done: the search has found no task to {verb}; search again")
        count = sum(work.result.places[place.queue, place.state] for place in places)
        job = doing_where(verb, places, TaskFilter(test=_test(call, query)), count)
        back = f"{call.base}/search?{urlencode({'q': query.text})}"
        order = Order(verb, job, back, frozenset(place.queue for place in places), query.text)
        if question := ask(call, order, fields):
            return question
        return await begin(call, order)

    return act


async def find(call: Call) -> Response:
    """Redirect to the task with this id in any queue, to the queue of this name, or otherwise to a search."""
    wanted = call.request.query_params.get("id", "").strip()
    if not wanted:
        return RedirectResponse(f"{call.base}/search", 303)
    names = await call.view.queues()
    for name in names:
        try:
            await call.view.task(name, wanted, 0)
        except (QueueNotFoundError, TaskNotFoundError, ValueError):
            continue
        return RedirectResponse(f"{call.base}/queues/{name_in_path(name)}/tasks/{name_in_path(wanted)}", 303)
    if wanted in names:
        return RedirectResponse(f"{call.base}/queues/{name_in_path(wanted)}", 303)
    return RedirectResponse(f"{call.base}/search?{urlencode({'q': wanted})}", 303)


SEARCHING: Final = [
    Route("GET", "/find", find),
    Route("GET", "/search", search, live_s=1, is_own=True),
    *(Route("POST", f"/search/{verb}", _doer(verb), f"task.{verb}") for verb in VERBS),
]
"""The search, and the paths to which its forms are sent."""
