"""The spans of a whole worker: one for each attempt, whatever came of it, with its parent and its attributes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fastq import Client, Inspector
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.waiting import wait_until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TYPE, ATTEMPT, OUTCOME = (f"messaging.asynq.task.{name}" for name in ("type", "attempt", "outcome"))
SHARED = {
    "messaging.system": "asynq",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
    "messaging.destination.name": "default",
}
HEADERS = {"traceparent": PARENT}
ENDS: dict[str, list[dict[str, str]]] = {
    "do:well": [{}],
    "do:later": [{}],
    "do:fail": [{"error.type": "KeyError"}],
    "do:again": [{"error.type": "Retry"}, {"error.type": "Retry"}, {}],
    "do:revoke": [{OUTCOME: "revoked"}],
    "do:linger": [{"error.type": "TaskTimeout"}],
    "do:die": [{"error.type": "WorkerCrashedError", OUTCOME: "killed"}],
    "do:hang": [{"error.type": "TaskTimeout", OUTCOME: "killed"}],
    "do:all": [{}],
}
"""The ends of the attempts of each task."""


def test_each_attempt_has_a_span(workers: Workers, client: Client, view: View, tmp_path: Path) -> None:
    more: dict[str, dict[str, Any]] = {
        "do:again": {"max_retry": 2},
        "do:linger": {"timeout": 1},
        "do:hang": {"timeout": 1},
        "do:later": {"process_in": 0.5},
    }
    ids = {
        type: client.enqueue(type, headers=HEADERS, **{"max_retry": 0, **more.get(type, {})}).id
        for type in ENDS
        if type != "do:all"
    }
    parts = [client.enqueue("part", group="night", headers=HEADERS) for _ in range(2)]
    traces = tmp_path / "traces"
    hooks = "--error-handler", "fastq.contrib.otel:record_killed", "--group-aggregator", "tests.e2e.traced_app:combine"
    limits = "--group-max-size", "2", "--timeout-grace", "0.2", "--delayed-task-check-interval", "0.1"
    flags = "--concurrency", "3", *hooks, *limits
    worker = workers.start(*flags, app="tests.e2e.traced_app:mux", env={"TRACES": str(traces)})

    def spans(name: str) -> list[Any]:
        text = traces.read_text().rpartition("\n")[0] if traces.exists() else ""
        found = [json.loads(line) for line in text.splitlines()]
        return [span for span in found if span["name"] == name]

    attempts = sum(map(len, ENDS.values()))
    wait_until(lambda: len(spans("process do:")) >= attempts)
    assert worker.stop() == 0
    (aggregate,) = spans("aggregate")
    assert aggregate["parent_id"] is None
    assert aggregate["attributes"]["messaging.asynq.task.group"] == "night"
    assert aggregate["attributes"]["messaging.batch.message_count"] == len(aggregate["links"]) == len(parts)
    assert {link["context"]["span_id"] for link in aggregate["links"]} == {"0x" + PARENT[36:52]}

    runs = sorted(spans("process do:"), key=lambda span: int(span["attributes"][ATTEMPT]))
    for type, ends in ENDS.items():
        found = [span for span in runs if span["attributes"][TYPE] == type]
        for attempt, (span, end) in enumerate(zip(found, ends, strict=True), 1):
            told = span["attributes"]
            assert told == {
                **SHARED,
                "messaging.message.id": ids.get(type, told["messaging.message.id"]),
                TYPE: type,
                ATTEMPT: attempt,
                "messaging.asynq.task.max_retry": len(ends) - 1,
                **end,
            }
            is_made = type == "do:all"
            assert span["context"]["trace_id"] == (aggregate["context"]["trace_id"] if is_made else "0x" + PARENT[3:35])
            assert span["parent_id"] == (aggregate["context"]["span_id"] if is_made else "0x" + PARENT[36:52])
            status = "ERROR" if "error.type" in end else "UNSET"
            assert (span["kind"], span["status"]["status_code"]) == ("SpanKind.CONSUMER", status)


def test_a_worker_without_traces_imports_no_opentelemetry_itself(
    workers: Workers, client: Client, url: str, tmp_path: Path
) -> None:
    app = "import sys\nfrom fastq import ServeMux\nmux = ServeMux()\n"
    app += "mux.handle('t', lambda task: task.write_result(' '.join(sys.modules).encode()))\n"
    (tmp_path / "telling.py").write_text(app)
    client.enqueue("t", task_id="id", retention=600)
    code = "import atexit, sys; from fastq.cli.worker import main;"
    code += "atexit.register(lambda: print('imported:', *sys.modules)); main()"
    flags = "--burst", "--concurrency", "1", "--metrics-listen", "127.0.0.1:0", "--task-log", str(tmp_path / "tasks")
    worker = workers.start(*flags, app="telling:mux", program=(sys.executable, "-c", code))
    assert worker.ended() == 0, worker.text
    main = worker.text.partition("imported:")[2].split()
    with Inspector(url) as inspector:
        child = (inspector.get_task_info("default", "id").result or b"").decode().split()
    assert "fastq.server.wiring.process" in main
    assert "fastq.worker.child.handler_runner" in child
    # redis-py imports the SDK by itself, where it is installed.
    code = "import redis, redis.asyncio, sys; print(*sys.modules)"
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = {*main, *child} - {*alone}
    assert [name for name in ours if name.startswith(("opentelemetry", "fastq.contrib"))] == []
