"""The page of the settings: those of this web process, and those that the browser remembers."""

import time
from collections.abc import Iterator
from typing import Final

from starlette.responses import Response

from fastq.web.access import ACTIONS, Role
from fastq.web.prometheus import without_password
from fastq.web.render import page
from fastq.web.site import Call, Route


async def settings(call: Call) -> Response:
    """Show the settings; only admins who see all queues get the settings of the process."""
    is_shown = call.user.role is Role.ADMIN and call.view.is_of_all
    return page(
        call,
        "settings.jinja",
        title="Settings",
        section="settings",
        rights=[(action, call.may(action)) for action in ACTIONS],
        process=list(_of_process(call)) if is_shown else [],
    )


def _of_process(call: Call) -> Iterator[tuple[str, str]]:
    """Yield the names and values of settings, without passwords."""
    site = call.site
    yield "Login", site.login
    yield "Read-only", "yes" if site.access.read_only else "no"
    yield "Forbidden", ", ".join(sorted(site.access.forbidden)) or "nothing"
    yield "Queues", ", ".join(site.queues)
    yield "Payloads", "hidden" if site.redaction.hides else "shown"
    yield "Redacted", ", ".join(sorted(site.redaction.keys)) or "nothing"
    yield "Links", ", ".join(link.name for link in site.links) or "none"
    yield "Typed tasks", f"{len(site.app.tasks):,}" if site.app else "none; fastq web --app names an app"
    yield "Metrics", "shown to Prometheus at /metrics" if site.exporter else "none; fastq web --enable-metrics-exporter"
    yield "Prometheus", without_password(site.prometheus) or "none"
    yield "Time zone", f"{time.strftime('%Z')}; days that asynq counts are UTC's"


SETTINGS: Final = [Route("GET", "/settings", settings)]
"""The page of the settings."""
