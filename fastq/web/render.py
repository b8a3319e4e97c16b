"""Templates, their filters, and static files."""

import gzip
import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.responses import Response

from fastq._version import __version__
from fastq.common.states import TaskState
from fastq.cron.words import words_of
from fastq.info import TaskInfo
from fastq.inspector import QueueInfo, TaskLocks
from fastq.inspector.fields import LOCKS, TASK, Field, Kind, faced
from fastq.inspector.queues import MANY_GROUPS
from fastq.text.fields import text_of
from fastq.text.human import number, plural, share, size, span, stamp, when
from fastq.text.lanes import lane_name, limit_text, places_text, why
from fastq.text.places import fullest, places_of, plural_of, use_text
from fastq.web.payloads import preview
from fastq.web.site import Call, Refusal, name_in_path

_MEDIA: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FOLDER: Final = resources.files("fastq.web") / "static"
_FILES: Final = {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.name.rpartition(".")[2] in _MEDIA}
_PACKED: Final = {name: gzip.compress(data, mtime=0) for name, data in _FILES.items()}
MANY_ROWS: Final = 20
"""Above this number of queues, the list has a filter."""
_VERSION: Final = hashlib.sha256(b"".join(data for _, data in sorted(_FILES.items()))).hexdigest()[:12]


def _moment(moment: datetime | None, now: datetime) -> Markup | str:
    """Format a time relative to now; the exact time is in the title."""
    if moment is None:
        return "\u2013"
    exact = moment.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(), stamp(moment), when(moment, now)
    )


def _latency(info: QueueInfo) -> Markup:
    """Format for how long the oldest pending task has waited; the page's script keeps counting."""
    since = info.timestamp - info.latency
    since = since.replace(microsecond=since.microsecond // 100_000 * 100_000)
    return Markup('<time datetime="{}" title="{}" data-form="span">{}</time>').format(
        since.astimezone(UTC).isoformat(), stamp(since), span(info.latency)
    )


def _facts(info: TaskInfo | TaskLocks, now: datetime) -> list[tuple[str, str]]:
    """Return titles and values of a task, or of its locks; a missing value is an empty text."""

    def told(field: Field) -> str:
        value = field.read(info)
        return "" if not value else _moment(value, now) if field.kind is Kind.TIME else text_of(field, info)

    table = LOCKS if isinstance(info, TaskLocks) else TASK
    return [(title, told(field)) for _, title, field in sorted(faced(table, "web"))]


def _clock(moment: datetime, text: str = "") -> Markup:
    """Format a clock time in UTC, or use the given text; the page's script rewrites it in the viewer's zone."""
    return Markup('<time datetime="{}" title="{}" data-form="clock">{}</time>').format(
        moment.astimezone(UTC).isoformat(), stamp(moment), text or stamp(moment)
    )


def _about(info: QueueInfo) -> str:
    """Return the sign before an estimated number of tasks."""
    return "≈ " if info.groups > MANY_GROUPS else ""


@pass_context
def _part(context: Context, name: str, caller: Callable[[], Markup]) -> Markup:
    """Mark a part of a page that is updated while the page is open."""
    html = caller()
    context["call"].parts[name] = str(html)
    return Markup('<div data-part="{}">{}</div>').format(name, html)


_templates = Environment(
    loader=PackageLoader("fastq.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_templates.filters.update(
    about=_about,
    fullest=fullest,
    sizes=plural_of,
    use=use_text,
    clock=_clock,
    facts=_facts,
    lane=lane_name,
    lane_limit=limit_text,
    lane_places=places_text,
    latency=_latency,
    moment=_moment,
    number=number,
    places=places_of,
    plural=plural,
    preview=preview,
    seconds=lambda count: span(timedelta(seconds=count // 60 * 60 if count >= 60 else count)),
    seg=name_in_path,
    share=share,
    size=size,
    span=span,
    why=why,
    words=words_of,
)
_templates.globals.update(part=_part, STATES=[state.value for state in TaskState], VERSION=__version__)
_templates.globals.update(MANY_ROWS=MANY_ROWS)


def load_templates() -> None:
    """Compile all templates, so that no page has to wait for it."""
    for name in _templates.list_templates(extensions=["jinja"]):
        _templates.get_template(name)


def page(call: Call, template: str, status: int = 200, **data: Any) -> Response:
    """Render a page for a user."""
    html = _templates.get_template(template).render(
        call=call,
        base=call.base,
        static=f"{call.base}/static/{_VERSION}",
        now=datetime.now(UTC),
        may=call.may,
        where=call.inspector.where,
        home=call.base.removesuffix(f"/@{call.site.name}"),
        **{"refreshes": False, "zone": "", **data},
    )
    return Response(html, status, media_type="text/html")


async def asset(call: Call) -> Response:
    """Return a file whose path changes with its content."""
    name = call.names["name"]
    if name not in _FILES:
        raise Refusal(404, "there is no such file")
    headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
    media = _MEDIA[name.rpartition(".")[2]]
    if "gzip" in call.request.headers.get("accept-encoding", ""):
        return Response(_PACKED[name], headers={**headers, "content-encoding": "gzip"}, media_type=media)
    return Response(_FILES[name], headers=headers, media_type=media)
