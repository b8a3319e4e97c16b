"""The hook child: a process that runs the app's hooks if the child that ran the task is gone.

The main process runs no user code. A call takes at most 5 s; if it fails, the default applies. The child exists only
for an app that defines such a hook.
"""

import logging
from typing import Final

import orjson

from fastq.errors import BrokerError
from fastq.log.setup import log_text
from fastq.pool.main.pool import ForkServer, PoolConfig
from fastq.pool.main.protocol import Event, EventKind
from fastq.server.base.config import ServerConfig, seconds_of
from fastq.server.children.spare_child import SpareChild
from fastq.server.inflight.dispositions import report_of
from fastq.server.inflight.tasks import InFlightTask
from fastq.worker.shared.report import FailureReport
from fastq.worker.shared.requests import HOOK_RUNNER, credentials_request, health_request, judge_request

LIMIT_S: Final = 5.0

_ERRORS: Final = {EventKind.TIMEOUT: "timeout", EventKind.CANCELED: "canceled", EventKind.MEMORY_LIMIT: "canceled"}
"""The names of errors for hooks, by how a task ended; all other ends are "crashed"."""

_log = logging.getLogger("fastq.hooks")


class HookChild:
    """The child that runs the app's hooks; ``judges`` is true if any of them decides on failures."""

    def __init__(self, config: ServerConfig, app: str, forks: ForkServer) -> None:
        hooks = {name: getattr(config, name) for name in ("error_handler", "is_failure", "retry_delay")}
        self.judges = any(hooks.values())
        self.checks_health = config.health_check is not None
        argument = orjson.dumps({**hooks, "health_check": config.health_check, "app": app}).decode()
        pool = PoolConfig(
            runner=HOOK_RUNNER,
            argument=argument,
            name="the hooks",
            start_method=config.start_method,
            start_timeout=seconds_of(config.start_timeout),
            timeout_grace=0.0,
            prefetch_time=2 * LIMIT_S,  # waiting calls are not given back, because there is no other child
        )
        self._child = SpareChild(pool, forks)

    async def judge(self, error: str, text: str, message: bytes) -> FailureReport | None:
        """Return the hooks' decision on a task's failure, None if the defaults apply."""
        if not self.judges:
            return None
        event = await self._ask(judge_request(error, text, message))
        return FailureReport.decode(event.data) if event is not None and event.kind is EventKind.RESULT else None

    async def judge_failure(self, task: InFlightTask, kind: EventKind, data: bytes) -> FailureReport:
        """Return the report of a failure that no child of the pool has reported."""
        found = report_of(kind, data)
        report = await self.judge(_ERRORS.get(kind, "crashed"), found.error, task.view.data)
        # The hooks decide; the text comes from the main process.
        return found if report is None else report._replace(error=found.error)

    async def judge_lost(self, message: bytes) -> FailureReport | None:
        """Return the hooks' decision on a task whose server died."""
        return await self.judge("lease_expired", "", message)

    async def check_health(self, error: BrokerError | None) -> None:
        """Run the health check with None or the error."""
        await self._ask(health_request(None if error is None else str(error)))

    async def credentials(self, name: str) -> object:
        """Return what the user's function ``name`` returns; ``RuntimeError`` if it fails, which is also logged."""
        event = await self._ask(credentials_request(name))
        if event is None or event.kind is not EventKind.RESULT:
            trace = b"" if event is None else event.data
            raise RuntimeError(trace.decode(errors="replace").rstrip().rpartition("\n")[2] or "no answer")
        return orjson.loads(event.data)

    async def stop(self) -> None:
        """End the child, if there is one."""
        await self._child.stop()

    async def _ask(self, data: bytes) -> Event | None:
        # The pool ends a hook at its limit; the extra time is for a child that must be replaced first.
        event = await self._child.ask(data, LIMIT_S, 2 * LIMIT_S)
        if event is not None and event.kind not in (EventKind.DONE, EventKind.RESULT):
            text = event.data.decode(errors="replace")
            log_text(_log, logging.ERROR, f"a hook failed ({event.kind.name.lower()}): {text}")
        return event
