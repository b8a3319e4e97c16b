"""The inspector's methods that stop or quiet fastq servers, and wait until they have done so."""

import time
from datetime import timedelta
from typing import Final

from fastq.broker.operation import Flow, Pause
from fastq.broker.operations.control import ServerOrder, count_listeners, send_order
from fastq.errors import BrokerAuthError, ServerNotListeningError
from fastq.inspector.checks import check_timeout
from fastq.inspector.driver import Driver, action, operation
from fastq.inspector.processes import running_servers
from fastq.inspector.records import ServerInfo
from fastq.options import check_text

LOOK_EVERY_S: Final = 0.2
AS_FAR_AS: Final = {"quiet": {"quiet", "stopping"}, "stopping": {"stopping"}}
"""For each status that can be waited for, the statuses that show that the server has reached it."""


class ControlMethods(Driver):
    """The inspector's methods that stop or quiet fastq servers."""

    @action
    def stop_server(self, server_id: str) -> Flow[None]:
        """Shut down a fastq server, as SIGTERM does; ``wait_for_server(id, "stopping")`` waits until it has begun.

        Go servers cannot be stopped in this way: ``ServerNotListeningError``.
        """
        return _tell(server_id, ServerOrder.STOP)

    @action
    def quiet_server(self, server_id: str) -> Flow[None]:
        """Make a fastq server stop fetching and finish its tasks, as SIGTSTP does; only a restart ends this.

        ``wait_for_server(id, "quiet")`` waits until the server is quiet. Go servers cannot do this:
        ``ServerNotListeningError``.
        """
        return _tell(server_id, ServerOrder.QUIET)

    @operation
    def wait_for_server(
        self, server_id: str, status: str, *, timeout: float | timedelta = 15.0
    ) -> Flow[ServerInfo | None]:
        """Wait until a server is "quiet" or "stopping"; returns its ``ServerInfo``, None if it is gone.

        ``TimeoutError`` after the ``timeout``. A server that died is gone from the list within 10 s.
        """
        if status not in AS_FAR_AS:
            raise ValueError(f"status must be one of {', '.join(AS_FAR_AS)}, not {status!r}")
        timeout_s = check_timeout(timeout)
        deadline_s = time.monotonic() + timeout_s
        while True:
            now = next((one for one in (yield from running_servers(self._now_ns())) if one.id == server_id), None)
            if now is None or now.status in AS_FAR_AS[status]:
                return now
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"server {server_id!r} is {now.status!r}, not {status!r}, after {timeout_s:g} s")
            yield Pause(LOOK_EVERY_S)


def _tell(server_id: str, order: ServerOrder) -> Flow[None]:
    check_text(server_id, "server_id")
    try:
        listeners: int = yield count_listeners(server_id)
    except BrokerAuthError:
        listeners = 1  # not every Redis user may count listeners; if the server does not listen, the wait will show it
    if not listeners:
        raise ServerNotListeningError(server_id)
    yield send_order(server_id, order)
