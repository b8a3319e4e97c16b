"""Typed tasks and Go's structs: what Go's encoder makes a typed function takes, and the other way round."""

import json
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import redis

from fastq import App, Client, Inspector
from fastq.app.go_source import go_source
from fastq.testing import run_task
from tests.app.test_payload import NOON, everything
from tests.app.test_schema import chain
from tests.e2e.harness import workers_on
from tests.e2e.view import View
from tests.interop.build import HERE, build_peer, run_go
from tests.interop.peer import GoPeer
from tests.interop.records import GoTaskInfo

pytestmark = pytest.mark.interop

app = App()


@dataclass
class Line:
    sku: str
    count: int


@dataclass
class Address:
    street: str
    city: str


@app.task("orders.take", queue="go", retention=3600, headers={"script": '{"do":"take_order"}'})
def take(
    id: int,
    note: str,
    raw: bytes,
    due: datetime,
    *,
    rate: float = 0.5,
    rush: bool = False,
    lines: list[Line],
    labels: dict[str, str] | None = None,
    parent: int | None = None,
    address: Address | None = None,
) -> dict[str, Any]:
    """Return what came, each part with Python's own words for it."""
    return {name: repr(value) for name, value in locals().items()}


def test_a_struct_of_go_s_becomes_the_arguments_of_a_function(
    go: GoPeer, redis_url: str, db: redis.Redis, tmp_path: Path
) -> None:
    info = GoTaskInfo.from_json(go.request("enqueue_order", type="orders.take", queue="go"))
    with workers_on(redis_url, tmp_path) as workers:
        worker = workers.start("--queues", "go", "--concurrency", "1", app="tests.interop.test_typed:app").is_ready()
        View(db).until("completed", info.id, "go")
        assert worker.stop() == 0, worker.text
    result = View(db).json_result(info.id, "go")
    due = datetime(2026, 11, 22, 12, 30, 0, 123457, timezone(timedelta(hours=1)))  # to the microsecond
    assert result == {
        "id": "7",
        "note": repr('<a> & \u2028 "é" \U0001f600'),
        "raw": repr(b"\x00\xff?>"),
        "due": repr(due),
        "rate": "1e+21",
        "rush": "False",
        "lines": repr([Line("a", 1), Line("b", 4294967295)]),
        "labels": repr({"a": "2", "z": "1"}),
        "parent": repr(2**62 + 1),
        "address": "None",
    }


def test_the_arguments_of_a_call_become_a_struct_of_go_s(go: GoPeer, redis_url: str) -> None:
    due = datetime(2026, 11, 22, 12, 30, tzinfo=UTC)
    task = take.task(7, "<é>", b"\x00\xff", due, rush=True, lines=[Line("a", 1)], address=Address("Lange Str.", "Ulm"))
    with Client(redis_url) as client, go.server(queues={"go": 1}):
        info = client.enqueue(task)
        go.executions(finished=1)
    with Inspector(redis_url) as inspector:
        done = inspector.get_task_info("go", info.id)
    assert done.last_err == ""
    assert json.loads(done.result or b"") == {
        "id": 7,
        "note": "<é>",
        "raw": "AP8=",
        "due": "2026-11-22T12:30:00Z",
        "rate": 0,
        "rush": True,
        "lines": [{"sku": "a", "count": 1}],
        "labels": None,
        "parent": None,
        "address": {"street": "Lange Str.", "city": "Ulm"},
    }


def test_the_go_that_is_written_for_an_app_compiles(tmp_path: Path) -> None:
    build_peer()  # so that its modules are here, or the test is skipped
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_bytes((HERE / "peer" / name).read_bytes())
    every = App()
    every.task(
        "every.kind",
        queue="go",
        max_retry=3,
        timeout=60,
        retention=3600,
        unique=5,
        group="g",
        process_in=1.5,
        deadline=NOON,
    )(everything)
    every.task("every.chain", aliases=["chain"])(chain)
    every.task("7_odd-name")(lambda: None)
    (tmp_path / "tasks.go").write_text(go_source(every, "main") + "\nfunc main() {}\n")
    (tmp_path / "orders.go").write_text(
        'package main\n\nimport "context"\n\n'
        "func enqueue(ctx context.Context) {\n"
        "\twidth := 1.5\n"
        "\tEnqueueEveryKind(ctx, nil, EveryKind{Number: 7, Real: &width})\n"
        "\tEnqueueX7OddName(ctx, nil, X7OddName{})\n"
        "}\n"
    )
    assert run_go(tmp_path, "vet", "-mod=mod", "./...").stderr == ""
    formatted = subprocess.run(["gofmt", "-l", str(tmp_path)], capture_output=True, text=True)
    assert (formatted.stdout, formatted.stderr) == ("", "")


@dataclass
class Shape:
    name: str
    points: list[int]
    tags: dict[str, str]
    notes: list[str] | None


def test_nil_slices_and_maps_of_written_structs_arrive_as_empty_ones(tmp_path: Path) -> None:
    build_peer()  # so that its modules are here, or the test is skipped
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_bytes((HERE / "peer" / name).read_bytes())
    shapes = App()
    got: list[Any] = []

    @shapes.task("draw")
    def draw(raw: bytes, numbers: list[int], shapes: list[Shape], extra: list[int] = [7]) -> None:  # noqa: B006
        got.append((raw, numbers, shapes, extra))

    (tmp_path / "tasks.go").write_text(go_source(shapes, "main"))
    (tmp_path / "main.go").write_text(
        'package main\n\nimport (\n\t"encoding/json"\n\t"os"\n)\n\n'
        "func main() {\n\tencoder := json.NewEncoder(os.Stdout)\n"
        "\tencoder.Encode(Draw{})\n"
        '\tencoder.Encode(&Draw{Raw: []byte("x"), Numbers: []int64{1}, Shapes: []Shape{{Name: "s"}}})\n}\n'
    )
    ran = run_go(tmp_path, "run", "-mod=mod", ".")
    assert ran.stderr == ""
    for line in ran.stdout.splitlines():
        run_task(shapes, "draw", line.encode())
    assert got == [(b"", [], [], [7]), (b"x", [1], [Shape("s", [], {}, None)], [7])]
    formatted = subprocess.run(["gofmt", "-l", str(tmp_path)], capture_output=True, text=True)
    assert (formatted.stdout, formatted.stderr) == ("", "")
