"""Seeded tasks over every combination of options, for either client, and what asynq makes of them."""

import hashlib
import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, cast

from tests.interop.records import GoOptions, GoTask

SECOND_NS = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUEUES = ("default", "critical:1", "q with space", "очередь")
TYPES = ("email:send", "t", "тип/задачи", " spaced ", 'q"uo\\te')
GROUPS = ("g", "g:with:colons", "группа")
TEXTS = ("", "v", "é", "\u2028\U0001f680", "x" * 300, "a\x00b")

Start: TypeAlias = Literal["now", "in", "at", "past"]


@dataclass(frozen=True)
class Combination:
    """Which options a task has; "past" is a process_at that is over, which asynq takes for none."""

    start: Start
    unique: bool
    group: bool
    retention: bool
    headers: bool
    task_id: bool


STARTS: tuple[Start, ...] = ("now", "in", "at", "past")
COMBINATIONS = [Combination(start, *flags) for start in STARTS for flags in itertools.product((False, True), repeat=5)]


@dataclass(frozen=True)
class Sample:
    """One task, in terms of neither client. Durations may have fractions of seconds, which the wire drops."""

    combination: Combination
    type: str
    payload: bytes | None
    queue: str
    headers: dict[str, str] | None
    task_id: str | None
    max_retry: int | None
    timeout: timedelta | None
    deadline: datetime | None
    process_in: timedelta | None
    process_at: datetime | None
    unique: timedelta | None
    retention: timedelta | None
    group: str | None

    @property
    def state(self) -> str:
        """The state in which asynq puts the task: a time to come goes before a group."""
        if self.combination.start in {"in", "at"}:
            return "scheduled"
        return "aggregating" if self.group else "pending"

    @property
    def timeout_s(self) -> int:
        """The timeout on the wire: half an hour if the task has neither timeout nor deadline."""
        if not self.timeout and not self.deadline:
            return 1800
        return int((self.timeout or timedelta()).total_seconds())

    @property
    def deadline_s(self) -> int:
        return unix_ns(self.deadline) // SECOND_NS if self.deadline else 0

    @property
    def retention_s(self) -> int:
        return int((self.retention or timedelta()).total_seconds())

    @property
    def lock(self) -> str:
        """The unique lock's key, empty for a task that is not unique."""
        if not self.unique:
            return ""
        digest = "" if self.payload is None else hashlib.md5(self.payload).hexdigest()
        return f"asynq:{{{self.queue}}}:unique:{self.type}:{digest}"

    def options(self) -> dict[str, Any]:
        """Return the options that are set, as fastq names them."""
        names = (
            "queue task_id max_retry timeout deadline process_in process_at unique retention group"  # as in the class
        )
        given = {name: getattr(self, name) for name in names.split()}
        return {name: value for name, value in given.items() if value is not None}

    def go_task(self) -> GoTask:
        """Return the same task for asynq's own client."""
        return GoTask(self.type, self.payload, self.headers, go_options(self.options()))


def go_options(options: Mapping[str, Any]) -> GoOptions:
    """Return fastq's options as the peer names them."""
    named: dict[str, Any] = {}
    for name, value in options.items():
        is_length = isinstance(value, timedelta)
        named[f"{name}_ns" if is_length else name] = value // timedelta(microseconds=1) * 1000 if is_length else value
    return cast(GoOptions, named)


def unix_ns(moment: datetime) -> int:
    """Return a time in whole nanoseconds, exactly."""
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


def samples(count: int, seed: int) -> Iterator[Sample]:
    """Yield tasks that go round the combinations; two with the same lock or id in a queue do not occur."""
    chance = random.Random(seed)
    now = datetime.now(UTC)
    for number in range(count):
        yield _sample(chance, number, now)


def _sample(chance: random.Random, number: int, now: datetime) -> Sample:
    combination = COMBINATIONS[number % len(COMBINATIONS)]
    return Sample(
        combination=combination,
        type=chance.choice(TYPES),
        payload=_payload(chance, number, combination.unique),
        queue=chance.choice(QUEUES),
        headers=_headers(chance) if combination.headers else None,
        task_id=f"id-{number}-é" if combination.task_id else None,
        max_retry=chance.choice((None, 0, 1, 25, 2**31 - 1)),
        timeout=_maybe(chance, timedelta(seconds=chance.uniform(60, 10_000))),
        deadline=_maybe(chance, _later(chance, now)),
        process_in=timedelta(seconds=chance.uniform(3600, 10**7)) if combination.start == "in" else None,
        process_at=_process_at(chance, now, combination.start),
        unique=timedelta(seconds=chance.uniform(3600, 10**7)) if combination.unique else None,
        retention=timedelta(seconds=chance.uniform(3600, 10**7)) if combination.retention else None,
        group=chance.choice(GROUPS) if combination.group else None,
    )


def _payload(chance: random.Random, number: int, unique: bool) -> bytes | None:
    if unique:
        return f"{number}:".encode() + chance.randbytes(8)
    return chance.choice((None, b"", b'{"id": 1}', chance.randbytes(chance.randrange(1, 400))))


def _headers(chance: random.Random) -> dict[str, str]:
    return {chance.choice(TEXTS): chance.choice(TEXTS) for _ in range(chance.randrange(1, 5))}


def _maybe(chance: random.Random, value: Any) -> Any:
    return value if chance.random() < 0.5 else None


def _later(chance: random.Random, now: datetime) -> datetime:
    return now + timedelta(seconds=chance.uniform(3600, 10**9))


def _process_at(chance: random.Random, now: datetime, start: Start) -> datetime | None:
    if start == "at":
        return _later(chance, now)
    return now - timedelta(seconds=chance.uniform(1, 10**9)) if start == "past" else None
