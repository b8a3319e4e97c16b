"""Maintains the archives' rules: sets them, logs dropped tasks, and spills tasks beyond the limit to files.

The scripts that archive tasks apply the rule that is in Redis. The rest is done here, in the janitor's rounds.
"""

import asyncio
import errno
import importlib
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, TypeAlias
from urllib.parse import quote

from fastq.broker.operation import Flow
from fastq.broker.operations.archive_rule import (
    ArchiveFull,
    ArchiveRule,
    drop_archived,
    read_archive_rule,
    set_archive_rule,
)
from fastq.broker.operations.maintain import Cleaned
from fastq.broker.operations.walk import Source, Walk, WalkedTask, WalkPage
from fastq.broker.transport.aio import AsyncBroker
from fastq.common.clock import Clock, at_unix_ns
from fastq.common.states import TaskState
from fastq.pool.main.protocol import PoolStartError
from fastq.server.base.config import ServerConfig
from fastq.wire import keys

LOG_EVERY_S: Final = 60.0
TASKS_A_CALL: Final = 200
TASK_LINES: Final = "fastq.inspector.task_lines"
"""The module that writes the lines of an export. It is imported only when an archive spills, since it takes 7 MB."""

LinesOf: TypeAlias = Callable[[Source, WalkPage, datetime], Flow[list[tuple[WalkedTask, str]]]]

_log = logging.getLogger("fastq.janitor")


@dataclass(slots=True)
class _Seen:
    """The last log line about an archive: the number of tasks dropped by then, and the time (monotonic seconds)."""

    dropped: int
    logged_s: float = float("-inf")


class ArchiveKeeper:
    """The rules of the archives of one server's queues."""

    def __init__(self, broker: AsyncBroker, config: ServerConfig, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._rules = {queue: rule for queue in config.queues if (rule := config.archive_rule(queue)) is not None}
        self._directory = Path(config.archive_spill_to) if config.archive_spill_to else None
        self._seen: dict[str, _Seen] = {}
        self._others: dict[str, ArchiveRule] = {}

    def make_directory(self) -> None:
        """Make the directory for tasks that spill; ``PoolStartError`` if nothing can be written there."""
        if self._directory is None:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self._directory):
                pass
        except OSError as error:
            why = f"failed tasks cannot be written there: {error.strerror or error}"
            raise PoolStartError(f"archive_spill_to={str(self._directory)!r}: {why}", is_misuse=True) from error

    async def set_rules(self) -> None:
        """Set the rules of this server's configuration; the rules of other queues stay as they are.

        Raises ``BrokerError``.
        """
        for queue, rule in self._rules.items():
            before = await self._broker.run(read_archive_rule(queue))
            if before == rule:
                continue
            await self._broker.run(set_archive_rule(queue, rule))
            if before != ArchiveRule():
                _log.warning("queue %s: the archive's rule changed from %s to %s", queue, _text(before), _text(rule))

    async def look(self, queue: str, cleaned: Cleaned, get_on: Callable[[], None]) -> None:
        """Log dropped tasks and a full archive, at most a line per minute; spill the tasks beyond the limits to a file.

        A rule that is gone from Redis is set again. ``get_on`` is called repeatedly while this takes long.
        """
        rule = await self._rule_in_force(queue, cleaned.rule)
        seen = self._seen.setdefault(queue, _Seen(cleaned.dropped))
        if rule is not None and rule.full is ArchiveFull.SPILL and self._directory is not None:
            try:
                await self._spill(queue, rule, get_on)
            except OSError as error:
                why = f"{error.strerror or error} ({error.filename or self._directory})"
                text = f"queue {queue}: cannot write failed tasks to a file: {why}; they stay in Redis"
                self._log_seldom(seen, logging.ERROR, text)
        elif rule is not None and rule.full is ArchiveFull.PAUSE and cleaned.archived >= rule.most:
            self._log_seldom(
                seen,
                logging.ERROR,
                f"queue {queue}: its archive is full with {cleaned.archived} failed tasks, and one more pauses the "
                f"queue; run or delete some, then fastq queue resume {queue}",
            )
        if (dropped := cleaned.dropped - seen.dropped) > 0 and self._log_seldom(
            seen,
            logging.WARNING,
            f"queue {queue}: the archive dropped {dropped} failed tasks, the oldest first, since it was full or they "
            "were too old; the settings are archive_max, archive_ttl and archive_full",
        ):
            seen.dropped = cleaned.dropped

    async def _rule_in_force(self, queue: str, found: ArchiveRule | None) -> ArchiveRule | None:
        """Return the rule that an archive follows, None if this server's configuration has none for it.

        Redis may have lost the rule: by a flush, a failover, or the deletion of the queue. The rule of a server that
        started later stays: two servers that overwrite each other would help nobody.
        """
        own = self._rules.get(queue)
        if own is None:
            return None
        if found is None:
            await self._broker.run(set_archive_rule(queue, own))
            _log.warning("queue %s: the archive's rule was gone from Redis and is set again: %s", queue, _text(own))
            return own
        if found not in (own, self._others.get(queue)):
            self._others[queue] = found
            _log.warning(
                "queue %s: the archive follows the rule of another server, %s; that of this one is %s",
                queue,
                _text(found),
                _text(own),
            )
        return found

    def _log_seldom(self, seen: _Seen, level: int, text: str) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s < seen.logged_s + LOG_EVERY_S:
            return False
        seen.logged_s = now_s
        _log.log(level, text)
        return True

    async def _spill(self, queue: str, rule: ArchiveRule, get_on: Callable[[], None]) -> None:
        """Write the tasks beyond the limits of the archive to the queue's file of the day, then delete them.

        Other servers may spill, too, so the archive is read anew after each part.
        """
        lines_of: LinesOf = importlib.import_module(TASK_LINES).lines_of
        source = Source(queue, keys.archived(queue), TaskState.ARCHIVED)
        walk = Walk(source, with_locks=True)
        spilled = found = 0
        archived = await self._broker.run(drop_archived(queue, []))
        while True:
            get_on()
            now = at_unix_ns(self._clock.unix_ns())
            # If there are not too many tasks, the oldest one shows whether any is too old.
            count = TASKS_A_CALL if found or archived > rule.most else 1
            page = await self._broker.run(walk.page(count))
            excess, expired_s = archived - rule.most, now.timestamp() - rule.ttl_s
            too_many = [
                task
                for place, task in enumerate(page.tasks, page.place)
                if place < excess or float(task.score) <= expired_s
            ]
            if not too_many:
                break
            found += len(too_many)
            lines = await self._broker.drive(lines_of(source, page._replace(tasks=too_many), now))
            # An id without a task needs no line.
            gone = [task for task, _ in lines] + [task for task in too_many if task.message is None]
            # A task whose hash has another state stays; the walk passes it, so that it does not hold up later tasks.
            walk.passed(page, [task for task in too_many if task not in gone])
            await asyncio.to_thread(_append, self._file(queue, now.date().isoformat()), [line for _, line in lines])
            archived = await self._broker.run(drop_archived(queue, [(task.id, task.score) for task in gone]))
            spilled += len(lines)
        if spilled:
            _log.warning(
                "queue %s: spilled %d failed tasks from the archive to a file in %s",
                queue,
                spilled,
                self._directory,
            )

    def _file(self, queue: str, day: str) -> Path:
        assert self._directory is not None  # the configuration is refused without one
        return self._directory / f"{quote(queue, safe='')}-{day}.jsonl"


def _append(path: Path, lines: Iterable[str]) -> None:
    """Append lines and flush them to disk, because the tasks are deleted afterwards.

    A line that was cut off before by a full disk stays a separate line. Only the owner may read the file.
    """
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(fd, "r+b", buffering=0) as out:
        size = out.seek(0, os.SEEK_END)
        is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        data = "".join(f"{line}\n" for line in lines).encode()
        written = out.write(b"\n" * is_torn + data)
        if written != is_torn + len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(fd)


def _text(rule: ArchiveRule) -> str:
    return f"{rule.most} tasks, {rule.ttl_s} s, then {rule.full}"
