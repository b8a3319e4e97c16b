"""The page of the doctor, and its repairs."""

from typing import Final

from starlette.responses import RedirectResponse, Response

from fastq.inspector import Level, Progress, Report
from fastq.web.orders import run_as_job
from fastq.web.render import page
from fastq.web.site import Call, Refusal, Route
from fastq.web.work import Work

SETTLE_S: Final = 1.0
MOST_TASKS: Final = 100_000
KEY: Final = "doctor"
LEVELS: Final = (Level.PROBLEM, Level.WARNING, Level.UNSEEN, Level.OK)


async def doctor(call: Call) -> Response:
    """Show what the doctor finds; the examination continues while somebody has the page open."""
    work = _examination(call)
    await work.settle(0.0 if call.is_live else SETTLE_S)
    report: Report | None = work.result
    findings = [] if report is None else sorted(report.findings, key=lambda each: LEVELS.index(each.level))
    return page(
        call,
        "doctor.jinja",
        title="Doctor",
        section="doctor",
        work=work,
        report=report,
        findings=[each for each in findings if each.level is not Level.OK],
        well=[each for each in findings if each.level is Level.OK],
        refreshes=work.is_running,
    )


def _examination(call: Call) -> Work:
    call.require_all_queues("the doctor examines")
    known = call.site.board.lookup(KEY)
    if call.is_live and known is not None:
        return known

    async def do(work: Work) -> str:
        work.result = await call.inspector.examine(limit=MOST_TASKS, progress=work.note)
        return ""

    return call.site.board.look_up(KEY, Work("Examination", call.user.name), do)


async def repair(call: Call) -> Response:
    """Make all safe repairs, after asking for confirmation."""
    call.require_all_queues("the doctor examines")
    known = call.site.board.lookup(KEY)
    report: Report | None = None if known is None else known.result
    if report is None or not report.repairs:
        raise Refusal(409, "nothing was done: the last examination found nothing that can be repaired safely")
    if dict(await call.form()).get("sure") != "yes":
        call.notes = None
        return page(call, "confirm_repair.jinja", title="Repair", section="doctor", repairs=report.repairs)

    async def do(work: Work) -> str:
        total = Progress(sum(each.count for each in report.repairs))
        for each in report.repairs:
            work.note(total)
            total.done += await call.inspector.repair(each, progress=lambda _: work.note(total))
        call.site.board.forget(KEY)
        return f"{total.done:,} repaired."

    job = Work("Repair what the doctor found", call.user.name)
    quick = await run_as_job(call, "doctor.repair", job, do)
    return RedirectResponse(f"{call.base}/doctor" if quick else f"{call.base}/jobs/{job.id}", 303)


DOCTOR: Final = [
    Route("GET", "/doctor", doctor, live_s=1),
    Route("POST", "/doctor/repair", repair, "doctor.repair"),
]
"""The page of the doctor."""
