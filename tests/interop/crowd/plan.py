"""The crowd's jobs: seeded tasks over every option, each with what is to become of it, the same in every run.

A job says who enqueues it, with which options, what its handler does, what inspectors do with it, and so what the books
must say of it at the end.
"""

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

QUEUES: Final = {"default": 3, "critical": 6, "low:1": 1}
SHELF: Final = "shelf"
"""A queue that no server serves, for tasks that are to stay where they are put."""
GROUPS: Final = ("g", "g:2", "группа")
PRODUCERS: Final = ("go", "one", "many", "async")
CANCELED: Final = "job:cancel"
TYPES: Final = ("job:mail", "job:mail", "job:async", "job:тип")
TEXTS: Final = ("", "v", "é", "\u2028\U0001f680", "x" * 300)
HOUR: Final = timedelta(hours=1)
SECOND_NS: Final = 1_000_000_000
AFTER_MEMORY_NS: Final = 5 * SECOND_NS
"""A cancelled task comes again only when fastq's servers have forgotten its cancellation, which takes them 2 s."""

OK: Final = ("ok",)
TIMEOUT: Final = ("context deadline exceeded", "TaskTimeout", "CancelledError")  # the last is what a coroutine sees
CANCEL: Final = ("context canceled", "TaskCanceled", "CancelledError")

Words: TypeAlias = tuple[str, ...]
"""Any of these must be in a text."""


@dataclass(frozen=True)
class Expected:
    """What the books must say of a task: its state ("" when gone), and of each of its runs a part of the outcome."""

    state: str = "completed"
    runs: tuple[Words, ...] = (OK,)
    retried: int = 0
    error: Words = ("",)
    result: bytes = b""
    processed: int = 1
    failed: int = 0


UNTOUCHED: Final[dict[str, Any]] = {"runs": (), "processed": 0}


@dataclass(frozen=True)
class Job:
    """A task in terms of neither client. ``twin`` shares its lock or id: only one of the two can be enqueued."""

    number: int
    producer: str
    type: str
    payload: bytes
    headers: dict[str, str] | None
    options: dict[str, Any]
    expected: Expected
    acts: tuple[str, ...] = ()
    twin: int | None = None
    is_grouped: bool = False

    @property
    def queue(self) -> str:
        return str(self.options["queue"])

    def new_payload(self) -> bytes:
        """Return what "update" puts in the payload's place."""
        return json.dumps({"do": "result", "result": _base64(b"new"), "n": self.number}).encode()


@dataclass
class Draft:
    """A job in the making."""

    script: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    acts: tuple[str, ...] = ()
    type: str = ""
    is_grouped: bool = False


def make_plan(count: int, seed: int) -> list[Job]:
    """Return so many jobs."""
    return Planner(random.Random(seed)).jobs(count)


class Planner:
    """Draws jobs."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = datetime.now(UTC)
        self.fates: dict[Callable[[int], Draft], int] = {
            self.ok: 32,
            self.result: 15,
            self.error_then_ok: 12,
            self.dead: 6,
            self.skip: 5,
            self.revoke: 5,
            self.panic_then_ok: 4,
            self.panic: 2,
            self.overdue: 2,
            self.acted_on: 7,
            self.shelved: 3,
            self.grouped: 7,
        }

    def jobs(self, count: int) -> list[Job]:
        jobs: list[Job] = []
        while len(jobs) < count:
            number = len(jobs)
            if number % 100 == 50:
                jobs += self.twins(number)
            else:
                jobs.append(self.job(number, self.draft(number)))
        return jobs

    def draft(self, number: int) -> Draft:
        if number % 600 == 300:
            return self.timeout(number)
        if number % 800 == 400:
            return self.cancel(number)
        (fate,) = self.chance.choices(list(self.fates), list(self.fates.values()))
        return fate(number)

    def job(self, number: int, draft: Draft) -> Job:
        """Give a draft what all jobs have."""
        chance = self.chance
        producer = chance.choice(PRODUCERS)
        options = self.common_options(number) | draft.options
        expected = dict(draft.expected)
        is_grouped = draft.is_grouped
        if is_grouped and producer == "go":
            options.pop("process_at", None)  # which may be over or not
            is_grouped = "process_in" not in options  # Go's client leaves out what a forwarder knows the group by
        if is_grouped:
            expected = {"state": "", **UNTOUCHED}
        if expected.get("state", "completed") == "completed" and "retention" not in options:
            expected |= {"state": "", "error": ("",)}
        script = draft.script | {"n": number}
        in_header = "update" not in draft.acts and chance.random() < 0.3
        return Job(
            number=number,
            producer=producer,
            type=draft.type or chance.choice(TYPES),
            payload=b"%d:" % number + chance.randbytes(chance.randrange(1, 60)) if in_header else _json(script),
            headers=self.headers(number, script if in_header else None),
            options=options,
            expected=Expected(**expected),
            acts=draft.acts,
            is_grouped=is_grouped,
        )

    def common_options(self, number: int) -> dict[str, Any]:
        chance = self.chance
        drawn = {
            "queue": chance.choice(list(QUEUES)),
            "task_id": f"id-{number}-é" if chance.random() < 0.5 else None,
            "max_retry": chance.choice((None, None, 3, 25, 2**31 - 1)),
            "timeout": timedelta(seconds=chance.uniform(120, 10_000)) if chance.random() < 0.3 else None,
            "deadline": self.now + timedelta(seconds=chance.uniform(3600, 10**8)) if chance.random() < 0.3 else None,
            "unique": HOUR * chance.uniform(1, 9) if chance.random() < 0.2 else None,
            "retention": HOUR * chance.uniform(1, 9) if chance.random() < 0.6 else None,
            **self.start(),
        }
        return {name: value for name, value in drawn.items() if value is not None}

    def start(self) -> dict[str, Any]:
        drawn = self.chance.random()
        if drawn < 0.06:
            return {"process_in": timedelta(seconds=self.chance.uniform(0.1, 3))}
        if drawn < 0.12:
            return {"process_at": self.now + timedelta(seconds=self.chance.uniform(-5, 10))}
        return {}

    def headers(self, number: int, script: dict[str, Any] | None) -> dict[str, str] | None:
        if script is None and self.chance.random() < 0.7:
            return None
        more = {self.chance.choice(TEXTS): self.chance.choice(TEXTS) for _ in range(self.chance.randrange(3))}
        return {**more, "n": str(number), **({"script": json.dumps(script)} if script else {})}

    def twins(self, number: int) -> list[Job]:
        """Return two jobs of which the first to come is enqueued: in the archive it keeps the other out."""
        draft = self.skip(number)
        first = self.job(number, draft)
        shared = {"unique": HOUR} if self.chance.random() < 0.5 else {"task_id": f"twin-{number}"}
        kept = {name: value for name, value in first.options.items() if name not in ("task_id", "unique")}
        others = [producer for producer in PRODUCERS if producer != first.producer]
        pair = ((number, first.producer), (number + 1, self.chance.choice(others)))
        return [
            Job(
                own,
                producer,
                first.type,
                first.payload,
                first.headers,
                kept | shared,
                first.expected,
                twin=2 * number + 1 - own,
            )
            for own, producer in pair
        ]

    # What becomes of a job

    def ok(self, number: int) -> Draft:
        return Draft({"do": "ok"})

    def result(self, number: int) -> Draft:
        result = b"%d" % number + self.chance.randbytes(8)
        return Draft({"do": "result", "result": _base64(result)}, expected={"result": result})

    def failing(self, number: int, do: str, times: int) -> Draft:
        text = f"{do} {number}"
        expected = {
            "runs": ((text,),) * times + (OK,),
            "retried": times,
            "error": (text,),
            "processed": times + 1,
            "failed": times,
        }
        return Draft({"do": do, "text": text, "times": times}, expected=expected)

    def error_then_ok(self, number: int) -> Draft:
        return self.failing(number, "error", self.chance.choice((1, 1, 2, 3)))

    def panic_then_ok(self, number: int) -> Draft:
        return self.failing(number, "panic", 1)

    def archived(self, number: int, do: str, max_retry: int) -> Draft:
        text = f"{do} {number}"
        expected = {
            "state": "archived",
            "runs": ((text,),) * (max_retry + 1),
            "retried": max_retry,
            "error": (text,),
            "processed": max_retry + 1,
            "failed": max_retry + 1,
        }
        return Draft({"do": do, "text": text}, {"max_retry": max_retry}, expected)

    def dead(self, number: int) -> Draft:
        return self.archived(number, "error", self.chance.choice((0, 1, 2)))

    def panic(self, number: int) -> Draft:
        return self.archived(number, "panic", self.chance.choice((0, 1)))

    def skip(self, number: int) -> Draft:
        draft = self.archived(number, "skip", 0)
        return Draft(draft.script, {}, draft.expected)

    def revoke(self, number: int) -> Draft:
        text = f"revoke {number}"
        return Draft({"do": "revoke", "text": text}, expected={"state": "", "runs": ((text,),)})

    def overdue(self, number: int) -> Draft:
        """Never run: the deadline is over before any server takes it."""
        draft = self.archived(number, "ok", self.chance.choice((0, 1)))
        draft.options["deadline"] = self.now - HOUR
        return Draft(draft.script, draft.options, draft.expected | {"runs": (), "error": TIMEOUT})

    def timeout(self, number: int) -> Draft:
        draft = self.failing(number, "sleep", 1)
        draft.script["for_ns"] = 600 * SECOND_NS
        draft.options["timeout"] = timedelta(seconds=3)
        draft.expected |= {"runs": (TIMEOUT, OK), "error": TIMEOUT}
        return draft

    def cancel(self, number: int) -> Draft:
        draft = self.failing(number, "wait", 1)
        draft.script |= {"gate": "never", "retry_in_ns": AFTER_MEMORY_NS}
        draft.expected |= {"runs": (CANCEL, OK), "error": CANCEL}
        draft.type = CANCELED
        return draft

    def acted_on(self, number: int) -> Draft:
        """Wait for what inspectors do with it: nothing else ends its wait."""
        result = b"r%d" % number
        ways: dict[tuple[str, ...], dict[str, Any]] = {
            ("run",): {"result": result},
            ("archive", "run"): {"result": result},
            ("update", "run"): {"result": b"new"},
            ("archive",): {"state": "archived", **UNTOUCHED},
            ("delete",): {"state": "", **UNTOUCHED},
            ("archive", "delete"): {"state": "", **UNTOUCHED},
        }
        acts = self.chance.choice(list(ways))
        return Draft({"do": "result", "result": _base64(result)}, {"process_in": HOUR}, ways[acts], acts)

    def shelved(self, number: int) -> Draft:
        """Stay in a queue that nobody serves, but for what inspectors do with it."""
        begin: dict[str, dict[str, Any]] = {
            "pending": {"process_in": timedelta(0)},
            "scheduled": {"process_in": HOUR},
            "aggregating": {"process_in": timedelta(0), "group": self.chance.choice(GROUPS)},
        }
        ways = {
            (): "",
            ("archive",): "archived",
            ("delete",): "gone",
            ("archive", "run"): "pending",
            ("run",): "pending",
        }
        state = self.chance.choice(list(begin))
        acts = self.chance.choice([acts for acts in ways if (state, acts) != ("pending", ("run",))])
        end = {"": state, "gone": ""}.get(ways[acts], ways[acts])
        return Draft({"do": "ok"}, {"queue": SHELF, **begin[state]}, {"state": end, **UNTOUCHED}, acts)

    def grouped(self, number: int) -> Draft:
        """Become a part of another task."""
        return Draft({"do": "ok"}, {"group": self.chance.choice(GROUPS)}, is_grouped=True)


def _json(script: dict[str, Any]) -> bytes:
    return json.dumps(script).encode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
