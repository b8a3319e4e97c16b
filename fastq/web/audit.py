"""The audit: a line of JSON for each change, failed login and refusal, in the log ``fastq.web.audit``."""

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from fastq.web.auth import name_tried
from fastq.web.guard import SAFE
from fastq.web.site import Call

MOST_OF_A_PATH: Final = 300

_log = logging.getLogger("fastq.web.audit")


def audit(call: Call, action: str, notes: Mapping[str, Any]) -> None:
    """Write the line of a change; ``notes`` have its result."""
    where = {"redis": call.site.name} if call.site.name else {}
    _log.info("%s", json.dumps({"action": action, **_who(call), **where, **call.names, **notes}))


def note_refusal(call: Call, path: str, status: int, text: str) -> None:
    """Write the line of a login that failed, or of an action that was refused.

    Anybody can cause such lines, so their number is limited: they are warnings, and the log writes only ten warnings
    with the same format string in ten seconds.
    """
    request = call.request
    line = {**_who(call), "method": request.method, "path": path[:MOST_OF_A_PATH], "outcome": text}
    if status == 401 and (name := name_tried(request)) is not None:
        _log.warning('{"action": "login.failed", %s', json.dumps({**line, "user": name})[1:])
    elif status == 429 and not call.is_let_in:
        _log.warning('{"action": "login.locked", %s', json.dumps({**line, "user": name_tried(request) or ""})[1:])
    elif status in (403, 405) and request.method not in SAFE:
        _log.warning('{"action": "refused", %s', json.dumps(line)[1:])


def _who(call: Call) -> dict[str, str]:
    client, role = call.request.client, call.user.role.name.lower() if call.is_let_in else ""
    return {"user": call.user.name, "role": role, "client": client.host if client else ""}
