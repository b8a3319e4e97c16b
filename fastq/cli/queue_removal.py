"""``fastq queue rm``: deletes queues with all their keys."""

from collections.abc import Sequence
from contextlib import suppress

import click

from fastq.cli.acting import Acting
from fastq.cli.commands import EXITS_OF_MANY, Verb
from fastq.cli.destructive import carry_out, confirm, yes_option
from fastq.cli.parameters import json_option
from fastq.cli.queue import queues_argument
from fastq.cli.session import Session, pass_session
from fastq.cli.streams import say_failure
from fastq.common.states import TaskState
from fastq.errors import BrokerError, QueueNotEmptyError, QueueStateError
from fastq.inspector import QueueInfo
from fastq.inspector.progress import OnProgress
from fastq.text.human import clean, number


@click.command("rm", cls=Verb, examples=["queue rm old", "queue rm old older --force --yes"], exits=EXITS_OF_MANY)
@queues_argument
@click.option("--force", "-f", is_flag=True, help="also delete the tasks in it")
@yes_option
@json_option
@pass_session
def rm(session: Session, queues: Sequence[str], force: bool, yes: bool, as_json: bool) -> int:
    """Delete queues; those with tasks only with --force, and never while tasks are active.

    A queue is paused while it is deleted. All keys of Redis are scanned, in chunks, for keys of the queue.
    """
    found: dict[str, QueueInfo] = {}

    def look(name: str) -> None:
        info = session.inspector.get_queue_info(name, search=True)  # unlisted groups count, too
        if info.active or (info.size and not force):
            raise QueueNotEmptyError(name, {state: getattr(info, state) for state in TaskState})
        found[name] = info

    acting = Acting(session, as_json=as_json).look(queues, look)
    if not found:
        return acting.end()
    listed = " and ".join(f"{clean(name)} with {number(info.size)} tasks" for name, info in found.items())
    confirm(f"This deletes for good: {listed}.", yes=yes)
    return acting.each(list(found), lambda name: _remove(session, found[name], force=force)).end()


def _remove(session: Session, info: QueueInfo, *, force: bool) -> str:
    def work(note: OnProgress) -> None:
        session.inspector.delete_queue(info.queue, force=force, progress=note)

    done = False
    try:
        carry_out(session, work, "deleted", info.size)
        done = True
    finally:
        if not done and not info.paused:  # the deletion has paused the queue; its remaining tasks must be processed
            _resume(session, info.queue)
    return f"Deleted {clean(info.queue)}."


def _resume(session: Session, queue: str) -> None:
    try:
        with suppress(QueueStateError):  # the queue was not paused yet
            session.inspector.unpause_queue(queue)
    except BrokerError:
        say_failure(f"{clean(queue)} may still be paused: fastq queue resume {queue}")
