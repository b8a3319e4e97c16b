"""The audit: a line of JSON for each change, in the log ``fastq.web.audit``."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastq.web.site import Call

__all__ = ["audit"]

_log = logging.getLogger("fastq.web.audit")


def audit(call: Call, action: str, notes: Mapping[str, Any]) -> None:
    """Write the line of a change; ``notes`` say what came of it."""
    client = call.request.client
    line = {"user": call.user.name, "role": call.user.role.name.lower(), "client": client.host if client else ""}
    where = {"redis": call.site.name} if call.site.name else {}
    _log.info("%s", json.dumps({"action": action, **line, **where, **call.names, **notes}))
