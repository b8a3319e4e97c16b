"""A trace goes on where a task goes from fastq to Go or back: both write and read its context in the headers."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from fastq import Client
from tests.e2e.harness import workers_on
from tests.interop.build import build
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.interop

FROM_FASTQ = ["process hop", "send go", "go process", "go send", "process hop", "send go", "go process"]
FROM_GO = ["go send", *FROM_FASTQ]


class Span(NamedTuple):
    name: str
    trace: str
    id: str
    parent: str


def lines_of(file: Path) -> list[dict[str, Any]]:
    text = file.read_text().rpartition("\n")[0] if file.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def spans_of_go(file: Path) -> list[Span]:
    return [Span(line["name"], line["trace_id"], line["span_id"], line["parent_id"]) for line in lines_of(file)]


def spans_of_fastq(file: Path) -> Iterator[Span]:
    """Read what ``tests.e2e.traced_app`` writes."""
    for line in lines_of(file):
        context, parent = line["context"], line["parent_id"] or f"0x{0:016x}"
        yield Span(line["name"], context["trace_id"][2:], context["span_id"][2:], parent[2:])


def chains(spans: list[Span]) -> list[list[str]]:
    """Return the names of the spans of each trace, from its root on."""
    children = {span.parent: span for span in spans if int(span.parent, 16)}
    found = []
    for span in (span for span in spans if not int(span.parent, 16)):
        chain = [span]
        while after := children.get(chain[-1].id):
            assert after.trace == span.trace
            chain.append(after)
        found.append([span.name for span in chain])
    return found


@contextmanager
def go_service(binary: Path, socket: Path, traces: Path) -> Iterator[IO[str]]:
    """Run the Go program meanwhile; each line that is written to it enqueues a task."""
    with (
        traces.open("wb") as output,
        subprocess.Popen([binary, "--socket", socket], stdin=subprocess.PIPE, stdout=output, text=True) as process,
    ):
        assert process.stdin is not None
        yield process.stdin
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def test_a_trace_goes_on_in_go_and_in_fastq(redis_socket: Path, redis_url: str, tmp_path: Path) -> None:
    """OpenTelemetry for Go before 1.42, that of older.mod, ignores a context with flags that it does not know."""
    seen: set[Span] = set()
    ours = tmp_path / "fastq"
    with workers_on(redis_url, tmp_path) as workers, Client(redis_url) as client:
        flags = "--queues", "py", "--concurrency", "1"
        worker = workers.start(*flags, app="tests.e2e.traced_app:mux", env={"TRACES": str(ours)})
        for modules in ("go.mod", "older.mod"):
            theirs = tmp_path / modules

            def spans(theirs: Path = theirs, seen: frozenset[Span] = frozenset(seen)) -> list[Span]:
                return [span for span in (*spans_of_fastq(ours), *spans_of_go(theirs)) if span not in seen]

            with go_service(build("traces", modules), redis_socket, theirs) as go:
                go.write("3\n")
                go.flush()
                client.enqueue("hop", b"3", queue="py")  # of a client without traces: fastq's server begins one
                wait_until(lambda: len(spans()) >= len(FROM_GO) + len(FROM_FASTQ))
            assert sorted(chains(spans())) == [FROM_GO, FROM_FASTQ], modules
            seen.update(spans())
        assert worker.stop() == 0
