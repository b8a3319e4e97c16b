"""What the clients leave in Redis is what Go's client left there (golden/keyspace.json), key by key, byte by byte."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from redis import Redis

from fastq import AsyncClient, Client, FastqError, Task, TaskInfo
from tests.keyspace import (
    FASTQS_OF_A_TASK,
    Cells,
    Difference,
    IntendedDifferences,
    Moment,
    Place,
    Window,
    differences_between,
    golden,
    snapshot,
)

IN_2030 = datetime(2030, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Call:
    """One enqueue of a golden case: the task, its own options, and those given to ``enqueue``."""

    type: Any
    payload: bytes | None
    options: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] | None = None

    def task(self) -> Task:
        return Task(self.type, self.payload, headers=self.headers)

    def whole_task(self) -> Task:
        """Return the task with all options its own."""
        options = dict(self.options)
        headers = {**(self.headers or {}), **options.pop("headers", {})}
        return Task(self.type, self.payload, headers=headers, **options)


def email(task_id: str, **options: Any) -> Call:
    return Call("email:send", b'{"id":1}', {"task_id": task_id, **options})


CASES: dict[str, list[list[Call]]] = {
    "enqueue_immediate": [[email("id-1")], [email("id-2")]],
    "enqueue_no_payload": [
        [Call("ping", None, {"task_id": "id-1", "queue": "critical", "headers": {"b": "2"}}, headers={"a": "1"})]
    ],
    "enqueue_process_in": [[email("id-1", process_in=HOUR)]],
    "enqueue_process_at_past": [[email("id-1", process_at=datetime.now(UTC) - HOUR)]],
    "enqueue_options_on_wire": [
        [
            email("id-1", max_retry=3, timeout=20, deadline=IN_2030, retention=90),
            email("id-2", timeout=1.5, retention=2.5),
            email("id-3", timeout=0.5),
            email("id-4", deadline=IN_2030),
            email("id-5", max_retry=0, timeout=-1),
            email("id-6", deadline=EPOCH),
            email("id-7", retention=-HOUR),
        ]
    ],
    "unique": [
        [email("id-1", unique=HOUR)],
        [email("id-2", unique=HOUR)],
        [
            Call("email:send", None, {"task_id": "id-3", "unique": HOUR}),
            Call("email:send", b"", {"task_id": "id-4", "unique": HOUR}),
        ],
    ],
    "unique_process_in": [[email("id-1", unique=HOUR, process_in=timedelta(minutes=30))]],
    "task_id_conflict": [
        [email("id-1"), Call("other", b"x", {"task_id": "id-1"})],
        [Call("other", b"x", {"task_id": "id-1", "unique": HOUR})],
    ],
    "group": [[email("id-1", group="g1")], [email("id-2", group="g2"), email("id-3", group="g1")]],
    "group_process_in": [[email("id-1", group="g1", process_in=HOUR)]],
    "batch_enqueue": [
        [
            Call("a", b"1", {"task_id": "id-1"}),
            Call("a", b"2", {"task_id": "id-2"}),
            Call("a", b"3", {"task_id": "id-3", "process_in": HOUR}),
            Call("a", b"4", {"task_id": "id-1"}),
            Call("u", b"5", {"task_id": "id-5", "unique": HOUR}),
            Call("g", b"6", {"task_id": "id-6", "group": "g1"}),
            Call(None, b"", {}),  # Go: a nil task
            Call("", b"", {}),
            Call("hdr", None, {"task_id": "id-9", "headers": {"h": "1"}}),
        ]
    ],
    "inspector_setup": [
        [
            email("pend"),
            Call("s", None, {"task_id": "sched", "process_in": HOUR}),
            Call("g", None, {"task_id": "grp", "group": "g1"}),
            Call("u", b"u", {"task_id": "uniq", "unique": HOUR}),
            Call("us", b"u", {"task_id": "uniq-sched", "unique": HOUR, "process_in": HOUR}),
        ]
    ],
    "aggregation": [[Call("part", b"%d" % n, {"task_id": f"id-{n}", "group": "g1"}) for n in (1, 2, 3)]],
}
"""The golden cases, or their first steps, that a client makes alone."""

Outcome = TaskInfo | Exception
Steps = Sequence[Sequence[Call]]
Compare = Callable[[list[Outcome]], None]


def enqueue_one_by_one(url: str, steps: Steps, each: Compare) -> None:
    with Client(url) as client:
        for calls in steps:
            each([outcome_of(partial(enqueue_call, client, call)) for call in calls])


def enqueue_on_a_loop(url: str, steps: Steps, each: Compare) -> None:
    async def enqueue(client: AsyncClient, call: Call) -> Outcome:
        try:
            return await client.enqueue(call.task(), **call.options)
        except (FastqError, ValueError, TypeError) as error:
            return error

    async def run() -> None:
        async with AsyncClient(url) as client:
            for calls in steps:
                each([await enqueue(client, call) for call in calls])

    asyncio.run(run())


def enqueue_together(url: str, steps: Steps, each: Compare) -> None:
    """Give each step's tasks to one ``enqueue_many``; one that cannot even be made has its error for a result."""

    with Client(url) as client:
        for calls in steps:
            made = [outcome_of(call.whole_task) for call in calls]
            results = iter(client.enqueue_many([task for task in made if isinstance(task, Task)]))
            each([next(results) if isinstance(task, Task) else task for task in made])


def enqueue_call(client: Client, call: Call) -> TaskInfo:
    return client.enqueue(call.task(), **call.options)


def outcome_of(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except (FastqError, ValueError, TypeError) as error:
        return error


WAYS = {"Client": enqueue_one_by_one, "AsyncClient": enqueue_on_a_loop, "enqueue_many": enqueue_together}

GO_ERRORS = {
    "task already exists": "DuplicateTaskError",
    "task ID conflicts with another task": "TaskIDConflictError",
    "task cannot be nil": "TypeError",
    "task typename cannot be empty": "ValueError",
}
"""Error texts are for people; what they stand for is a class."""


def cells_of_golden(returned: Sequence[Mapping[str, Any]]) -> Cells:
    """Turn what Go's calls returned into cells, as those of the keyspace."""
    cells: Cells = {}
    for index, call in enumerate(returned):
        key, info = f"returned[{index}]", call["value"]
        cells[Place(key, "outcome")] = "enqueued" if info else GO_ERRORS.get(call["error"], call["error"])
        cells |= {Place(key, name): golden_info_value(name, value) for name, value in (info or {}).items()}
    return cells


def golden_info_value(name: str, value: Any) -> Any:
    if name in {"timeout", "retention"}:
        return str(go_duration_s(value))
    if name == "next_process_at" and value:
        return Moment(datetime.fromisoformat(value[:26] + "+00:00").timestamp(), slack_s=0.001)
    if value is None and name == "headers":
        return "{}"
    return str(value).replace("Z", "+00:00") if name == "deadline" else str(value)


def go_duration_s(text: str) -> float:
    units = {"h": 3600, "m": 60, "s": 1}
    total = sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)([hms])", text))
    return -total if text.startswith("-") else total


def cells_of_outcomes(outcomes: Sequence[Outcome]) -> Cells:
    cells: Cells = {}
    for index, outcome in enumerate(outcomes):
        key = f"returned[{index}]"
        if isinstance(outcome, Exception):
            cells[Place(key, "outcome")] = type(outcome).__name__
        else:
            cells[Place(key, "outcome")] = "enqueued"
            assert outcome.lost == 0, "fastq's own; it was never run"
            names = [name for name in TaskInfo.__slots__ if name not in FASTQS_OF_A_TASK]
            cells |= {Place(key, name): info_value(name, getattr(outcome, name)) for name in names}
    return cells


def info_value(name: str, value: Any) -> Any:
    match value:
        case datetime() if name == "next_process_at":
            return Moment(value.timestamp(), slack_s=0.001)
        case datetime():
            return value.isoformat()
        case timedelta():
            return str(value.total_seconds())
        case bytes():
            return value.hex()
        case None if name == "result":
            return ""
        case Mapping():
            return str(dict(value))
    return str(value)


def replay(case: str, way: str, db: Redis, url: str, intended: IntendedDifferences) -> dict[str, Difference]:
    """Make a case's calls in one of the ways; return what differs from Go and is not intended."""
    windows: list[Window] = []
    found: dict[str, Difference] = {}
    start_s = time.time()

    def compare(outcomes: list[Outcome]) -> None:
        nonlocal start_s
        windows.append(Window(start_s, time.time()))
        expected = golden(case, len(windows) - 1)
        if expected.returned:
            expected = replace(expected, cells=expected.cells | cells_of_golden(expected.returned))
        cells = snapshot(db) | (cells_of_outcomes(outcomes) if expected.returned else {})
        differences = differences_between(expected, cells, windows)
        for place in list(differences):
            # Where one side has an error and the other a TaskInfo, that is the difference, not each field.
            if place.part != "outcome" and Place(place.key, "outcome") in differences:
                del differences[place]
        left = intended.unexplained(expected, differences, windows)
        found.update({f"step {expected.step}: {place.key} {place.part}": value for place, value in left.items()})
        start_s = time.time()

    WAYS[way](url, CASES[case], compare)
    assert len(windows) == len(CASES[case])
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_the_keyspace_is_as_go_leaves_it(case: str, way: str, db: Redis, url: str) -> None:
    assert replay(case, way, db, url, IntendedDifferences()) == {}


def test_every_intended_difference_is_needed(db: Redis, url: str) -> None:
    intended = IntendedDifferences()
    for case in CASES:
        replay(case, "Client", db, url, intended)
        db.flushall()
    # The later steps of a case are a server's.
    assert [unused for unused in intended.unused(CASES) if unused[1] < len(CASES[unused[0]])] == []


def test_every_intended_difference_names_a_golden_step_and_its_row() -> None:
    for entry in IntendedDifferences().entries:
        assert golden(entry["case"], entry["step"]).label
        assert entry["row"].strip()
        assert set(entry) == {"case", "step", "key", "row", "fastq"}


@pytest.mark.parametrize(
    ("command", "key", "part"),
    [
        ("HSET {t} pending_since 1000000000", "asynq:{default}:t:id-1", "pending_since"),
        ("HSET {t} state Pending", "asynq:{default}:t:id-1", "state"),
        ("HSET {t} msg \x1a\x04id-1", "asynq:{default}:t:id-1", "msg"),
        ("HSET {t} extra x", "asynq:{default}:t:id-1", "extra"),
        ("HDEL {t} unique_key", "asynq:{default}:t:id-1", "unique_key"),
        ("PEXPIRE {u} 3540000", "asynq:{default}:unique:email:send:d2ce28b9a7fd7e4407e2b0fd499b7fe4", "ttl"),
        ("PERSIST {u}", "asynq:{default}:unique:email:send:d2ce28b9a7fd7e4407e2b0fd499b7fe4", "ttl"),
        ("SET {u} id-2 KEEPTTL", "asynq:{default}:unique:email:send:d2ce28b9a7fd7e4407e2b0fd499b7fe4", "string"),
        ("RPUSH {p} id-1", "asynq:{default}:pending", "elements"),
        ("SADD asynq:queues other", "asynq:queues", "members"),
        ("SET asynq:left:over 1", "asynq:left:over", "string"),
    ],
)
def test_the_comparison_sees_a_wrong_cell(command: str, key: str, part: str, db: Redis, url: str) -> None:
    start_s = time.time()
    with Client(url) as client:
        enqueue_call(client, CASES["unique"][0][0])
    names = {
        "t": "asynq:{default}:t:id-1",
        "u": "asynq:{default}:unique:email:send:d2ce28b9a7fd7e4407e2b0fd499b7fe4",
        "p": "asynq:{default}:pending",
    }
    execute: Any = db.execute_command
    execute(*(word.format(**names) for word in command.split(" ")))
    windows = [Window(start_s, time.time())]
    assert list(differences_between(golden("unique"), snapshot(db), windows)) == [Place(key, part)]


@pytest.mark.parametrize("seconds", [-60, 60])
def test_the_comparison_sees_a_wrong_score(seconds: int, db: Redis, url: str) -> None:
    start_s = time.time()
    with Client(url) as client:
        enqueue_call(client, CASES["enqueue_process_in"][0][0])
    db.zincrby("asynq:{default}:scheduled", seconds, "id-1")
    windows = [Window(start_s, time.time())]
    differences = differences_between(golden("enqueue_process_in"), snapshot(db), windows)
    assert list(differences) == [Place("asynq:{default}:scheduled", "score of id-1")]
