"""Whether a server is alive and whether it is ready, as probes ask."""

from fastq.server.wiring.presence import ServerStatus
from fastq.server.wiring.process import ServerProcess


def why_not_ready(process: ServerProcess) -> str:
    """Return why a server does not take tasks now; "" if it does."""
    if process.presence.status is ServerStatus.STOPPING:
        return "shutting down"
    if not process.has_begun:
        return "starting"
    if process.presence.status is ServerStatus.QUIET:
        return "quiet: fetches no tasks"
    if why := _why_stopped(process):
        return why
    return "" if process.pool.can_work else "no worker process can take tasks"


def _why_stopped(process: ServerProcess) -> str:
    """Return the error that keeps the tasks of every queue from running; "" if any queue works."""
    failing = {**process.lane_keeper.failing, **process.ack_writer.failing(), **process.fetcher.failing}
    return str(next(iter(failing.values()))) if failing.keys() >= process.fetcher.queues else ""


def why_unhealthy(process: ServerProcess) -> str:
    """Return why a server should be restarted; "" if it is healthy.

    If the loop hangs, the probe gets no answer at all.
    """
    stuck = [(actor.name, why) for actor in (*process.actors, process.watchdog) if (why := actor.why_stuck())]
    return "; ".join(f"{name}: {why}" for name, why in stuck)
