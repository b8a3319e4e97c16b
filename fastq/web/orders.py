"""Actions on many tasks: each asks for confirmation first, and then runs as a job."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from fastq.common.states import TaskState
from fastq.inspector import Progress
from fastq.inspector.jobs import Job, may
from fastq.web.audit import audit
from fastq.web.render import page
from fastq.web.site import Call, Refusal, Route
from fastq.web.work import Work, WorkState

QUICK_S: Final = 0.4
"""A job that ends within this time gets no page of its own; the previous page shows the result."""
ASK_ABOVE: Final = 1_000
"""To delete more tasks than this, the user has to type their number."""
FAILURES: Final = 10
KEPT: Final = frozenset(("all", "group", "id", "only", "q", "state", "to"))
"""The fields of a form that its question passes on; the others are dropped."""
MOST_NAMED: Final = 100


@dataclass(frozen=True, slots=True)
class Order:
    """A requested action: the job, the page to return to, and the queues that it concerns. ``query`` is the search on
    whose tasks the job acts, empty for other orders.
    """

    verb: str
    job: Job
    back: str
    queues: frozenset[str]
    query: str = ""

    @property
    def notes(self) -> dict[str, Any]:
        """Return the search and its queues for the audit line; nothing for other orders, whose path names the queue."""
        return {"query": self.query, "queues": sorted(self.queues)[:MOST_NAMED]} if self.query else {}


def ask(call: Call, order: Order, fields: Sequence[tuple[str, str]]) -> Response | None:
    """Return a page with the question, or None if the user has already answered it."""
    given = dict(fields)
    asked = given.get("asked", str(order.job.total))
    must_type = order.job.destroys and asked.isdecimal() and int(asked) > ASK_ABOVE
    typed = "".join(each for each in given.get("count", "") if each.isdecimal())
    if given.get("sure") == "yes" and (not must_type or typed == asked):
        return None
    call.notes = None
    kept = [(name, value) for name, value in fields if name in KEPT]
    is_wrong = given.get("sure") == "yes"
    most = order.job.total if order.job.destroys and order.job.total > ASK_ABOVE else 0
    return page(
        call,
        "confirm.jinja",
        title=order.verb,
        section="queues",
        order=order,
        fields=kept,
        to_type=most,
        is_wrong=is_wrong,
    )


def did(verb: str, progress: Progress, more: Mapping[str, str] | None = None, *, missing: int = 0) -> str:
    """Return the query of a URL, from which the next page reads what was done."""
    failed = len(progress.failures) + missing
    return urlencode({"did": verb, "done": progress.done, "failed": failed, **(more or {})})


async def begin(call: Call, order: Order, more: Mapping[str, str] | None = None) -> Response:
    """Begin the job of an order; redirect to the job's page, or to the previous page if the job was quick."""
    title = order.job.question.rstrip("?")
    work = Work(f"{title}: {order.query}" if order.query else title, call.user.name, order.queues)

    async def do(work: Work) -> str:
        work.progress.total = order.job.total
        await call.inspector.carry_out(order.job, progress=work.note)
        return order.job.outcome(work.progress)

    if await run_as_job(call, f"task.{order.verb}", work, do, order.notes):
        joint = "&" if "?" in order.back else "?"
        return RedirectResponse(f"{order.back}{joint}{did(order.verb, work.progress, more)}", 303)
    return RedirectResponse(f"{call.base}/jobs/{work.id}", 303)


async def run_as_job(
    call: Call, action: str, work: Work, do: Callable[[Work], Awaitable[str]], about: Mapping[str, Any] | None = None
) -> bool:
    """Begin a job; return whether it has succeeded within ``QUICK_S``. If it goes on, a second audit line is written at
    its end. ``about`` has the data about the tasks for each audit line.
    """
    told = about or {}
    call.site.board.start(work, do)
    await work.settle(QUICK_S)
    if work.is_running:
        call.notes = {"job": work.id, **told, "outcome": "begun"}
        work.on_end = lambda: audit(call, action, {"job": work.id, **told, **_notes(work)})
        return False
    del call.site.board.jobs[work.id]
    call.notes = {**told, **_notes(work)}
    if work.state is not WorkState.DONE:
        before = f"; {work.progress.done:,} tasks were done before" if work.progress.done else ""
        raise Refusal(409, f"{work.said or 'it was stopped'}{before}")
    return True


async def delete_as_job(call: Call, *, force: bool) -> tuple[Work, bool]:
    """Begin the job that deletes the queue in the path; return it, and whether it has succeeded within ``QUICK_S``."""
    name = call.names["queue"]

    async def do(work: Work) -> str:
        await call.inspector.delete_queue(name, force=force, progress=work.note)
        return "The queue is deleted."

    work = Work(f"Delete the queue {name}", call.user.name, frozenset({name}))
    return work, await run_as_job(call, "queue.delete", work, do)


def require_possible(verb: str, state: TaskState) -> None:
    """Refuse an action that is not possible on tasks of a state."""
    if not may(verb, state):
        raise Refusal(400, f"{verb} is not possible for {state} tasks")


def _notes(work: Work) -> dict[str, Any]:
    progress = work.progress
    notes: dict[str, Any] = {"count": progress.done, "failed": progress.failures[:FAILURES]}
    if len(progress.failures) > FAILURES:
        notes["failures"] = len(progress.failures)
    match work.state:
        case WorkState.STOPPED:
            notes["outcome"] = f"stopped by {work.stopped_by}" if work.stopped_by else "stopped"
        case WorkState.FAILED:
            notes["outcome"] = f"failed: {work.said}"
        case _:
            notes["outcome"] = "done"
    return notes


async def jobs(call: Call) -> Response:
    """List the jobs, the newest first."""
    found = [work for work in reversed(call.site.board.jobs.values()) if sees(call, work)]
    return page(call, "jobs.jinja", title="Jobs", section="jobs", jobs=found)


async def job(call: Call) -> Response:
    """Show a job and its progress."""
    work = job_of(call)
    return page(call, "job.jinja", title=work.title, section="jobs", job=work)


async def stop(call: Call) -> Response:
    """Stop a job before its next task."""
    return RedirectResponse(f"{call.base}/jobs/{(await stopped(call)).id}", 303)


async def stopped(call: Call) -> Work:
    """Stop the job in the path; wait for its end for ``QUICK_S`` at most."""
    work = job_of(call)
    if not work.is_running:
        raise Refusal(409, f"the job has ended already: {work.said or work.state}")
    work.stop(call.user.name or "a user")
    await work.settle(QUICK_S)
    return work


def job_of(call: Call) -> Work:
    """Return the job in the path, if the user may see it."""
    work = call.site.board.jobs.get(call.names["job"])
    if work is None or not sees(call, work):
        raise Refusal(404, "there is no such job; jobs are forgotten when fastq web ends")
    return work


def sees(call: Call, work: Work) -> bool:
    """Return whether a user may see every queue that a job works on."""
    return call.view.is_of_all or (work.queues is not None and all(map(call.view.sees, work.queues)))


JOBS: Final = [
    Route("GET", "/jobs", jobs, live_s=1),
    Route("GET", "/jobs/{job}", job, live_s=1),
    Route("POST", "/jobs/{job}/stop", stop, "job.stop"),
]
