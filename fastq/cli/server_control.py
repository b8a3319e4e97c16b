"""``fastq server stop`` and ``quiet``: make servers shut down or stop fetching, and wait until they do."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from fastq.cli.acting import Acting
from fastq.cli.commands import EXITS_OF_MANY, Verb
from fastq.cli.destructive import confirm, yes_option
from fastq.cli.parameters import json_option
from fastq.cli.server_names import name_of, the_server
from fastq.cli.session import Session, pass_session
from fastq.errors import BrokerTimeoutError, FastqError, ServerNotListeningError
from fastq.inspector import ServerInfo
from fastq.text.human import clean, number

F = TypeVar("F", bound=Callable[..., Any])

WAIT_S: Final = 15.0
"""How long to wait for the new state. A server shows it at once; a dead server leaves the list within 10 s."""


def _options(command: F) -> F:
    for option in (
        json_option,
        yes_option,
        click.option("--no-wait", is_flag=True, help="do not wait until it is done"),
        click.option("--all", "every", is_flag=True, help="all servers"),
        click.argument("ids", nargs=-1, metavar="SERVER..."),
    ):
        command = option(command)
    return command


@click.command(
    "stop", cls=Verb, examples=["server stop aeea", "server stop --all --yes --no-wait"], exits=EXITS_OF_MANY
)
@_options
@pass_session
def stop(session: Session, ids: Sequence[str], every: bool, no_wait: bool, yes: bool, as_json: bool) -> int:
    """Shut servers down, as SIGTERM does: running tasks may finish within the servers' shutdown timeout.

    Tasks that do not finish in time are requeued. SERVER is an id as shown by server ls, or the beginning of one, or
    HOST:PID. A supervisor (systemd, Kubernetes) starts the server again, as after any exit. asynq servers ignore the
    order: send them a signal.
    """
    return _Telling(session, stops=True, wait=not no_wait).run(ids, every=every, yes=yes, as_json=as_json)


@click.command("quiet", cls=Verb, examples=["server quiet aeea", "server quiet vm:19830 --yes"], exits=EXITS_OF_MANY)
@_options
@pass_session
def quiet(session: Session, ids: Sequence[str], every: bool, no_wait: bool, yes: bool, as_json: bool) -> int:
    """Let servers fetch no more tasks and finish those they have, as SIGTSTP does; only a restart undoes it.

    SERVER is an id as shown by server ls, or the beginning of one, or HOST:PID. asynq servers ignore the order: send
    them the signal.
    """
    return _Telling(session, stops=False, wait=not no_wait).run(ids, every=every, yes=yes, as_json=as_json)


class _Telling:
    """A command to servers: sent to one after the other; then the effect is awaited from all of them."""

    def __init__(self, session: Session, *, stops: bool, wait: bool) -> None:
        self._session = session
        self._stops = stops
        self._wait = wait

    def run(self, ids: Sequence[str], *, every: bool, yes: bool, as_json: bool) -> int:
        if bool(ids) == every:
            raise click.UsageError("name servers, or use --all; fastq server ls lists them")
        running = self._session.inspector.servers()
        if every and not running:
            raise FastqError("there are no servers running")
        acting = Acting(self._session, as_json=as_json)
        chosen: dict[str, ServerInfo] = {}

        def choose(name: str) -> None:
            info = the_server(name, running)
            chosen[info.id] = info

        acting.look([info.id for info in running] if every else ids, choose)
        if not chosen:
            return acting.end()
        confirm(self._question(list(chosen.values())), yes=yes)
        told: list[str] = []

        def tell(server_id: str) -> None:
            self._tell(chosen[server_id])
            told.append(server_id)

        acting.look(list(chosen), tell)
        deadline_s = time.monotonic() + WAIT_S
        return acting.each(told, lambda server_id: self._outcome(chosen[server_id], deadline_s)).end()

    def _question(self, chosen: Sequence[ServerInfo]) -> str:
        names = ", ".join(map(name_of, chosen))
        tasks = sum(len(info.active_workers) for info in chosen)
        what = "will shut down" if self._stops else "will fetch no more tasks until a restart"
        return f"{names}: {what}; {_running(tasks)} there now."

    def _tell(self, info: ServerInfo) -> None:
        inspector = self._session.inspector
        try:
            (inspector.stop_server if self._stops else inspector.quiet_server)(info.id)
        except ServerNotListeningError:
            signal = "SIGTERM" if self._stops else "SIGTSTP"
            raise FastqError(
                f"{name_of(info)} takes no orders (an asynq server, or denied by ACL); send {signal} to {info.pid} "
                f"on {clean(info.host)}"
            ) from None

    def _outcome(self, info: ServerInfo, deadline_s: float) -> str:
        if not self._wait:
            return f"Told {name_of(info)}."
        status, left_s = "stopping" if self._stops else "quiet", max(0.0, deadline_s - time.monotonic())
        try:
            now = self._session.inspector.wait_for_server(info.id, status, timeout=left_s)
        except BrokerTimeoutError:
            raise
        except TimeoutError:
            raise FastqError(
                f"{name_of(info)} got the order, but shows no effect after {WAIT_S:g} s; see its log"
            ) from None
        if now is None:
            return f"{name_of(info)} is gone."
        done = "is stopping" if now.status == "stopping" else "is quiet"
        return f"{name_of(info)} {done}; {_running(len(now.active_workers))} there."


def _running(count: int) -> str:
    return "one task runs" if count == 1 else f"{number(count) if count else 'no'} tasks run"
