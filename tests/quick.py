"""The quick set of tests: ``pytest -p tests.quick`` leaves out what is named here, and says so at its end.

Left out is what needs whole processes, a browser, Go, PostgreSQL, Prometheus, Django or real time. All of it
runs with ``make test-rest``, and with ``make test-all``. A test is left out by its folder or file, or by a mark of
its own.
"""

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]

LEFT_OUT: Final = {
    "tests/broker/operations/test_lost_replies.py": "connections that break, in real time",
    "tests/broker/transport/test_cluster.py": "a cluster",
    "tests/broker/transport/test_sentinel.py": "sentinels",
    "tests/chaos/test_chaos.py": "servers under faults",
    "tests/chaos/topology/test_topology.py": "sentinels and clusters under faults",
    "tests/cli/test_bench.py": "commands as whole processes",
    "tests/cli/test_demo.py": "commands as whole processes",
    "tests/cli/test_exporter.py": "commands as whole processes",
    "tests/cli/test_run.py": "commands as whole processes",
    "tests/cli/test_scheduler.py": "commands as whole processes",
    "tests/cli/test_streams.py": "commands as whole processes",
    "tests/cli/test_web.py": "commands as whole processes",
    "tests/cli/test_worker.py": "commands as whole processes",
    "tests/contrib/celery/test_django.py": "Django, PostgreSQL",
    "tests/contrib/celery/test_ends.py": "servers as whole processes",
    "tests/contrib/django": "Django",
    "tests/contrib/sqlalchemy": "SQLAlchemy",
    "tests/contrib/test_otel.py": "OpenTelemetry",
    "tests/contrib/test_starlette.py": "FastAPI",
    "tests/docs/test_blocks.py": "the frameworks that pages show",
    "tests/docs/test_deploying.py": "Kubernetes' schemas",
    "tests/docs/test_django.py": "Django",
    "tests/docs/test_site.py": "the site as a whole",
    "tests/docs/test_tutorial.py": "the tutorial to the letter",
    "tests/docs/test_types.py": "type checkers",
    "tests/e2e": "servers as whole processes",
    "tests/interop": "a real Go asynq",
    "tests/metrics/test_files.py": "Prometheus",
    "tests/pool/main/test_chaos.py": "processes that are killed, in real time",
    "tests/pool/main/test_supervisor.py": "processes that are killed, in real time",
    "tests/pool/main/test_timekeeper.py": "time limits, in real time",
    "tests/release/test_page.py": "what renders PyPI's page",
    "tests/scheduler/test_scheduler.py": "programs as whole processes",
    "tests/scheduler/test_sharing.py": "programs as whole processes",
    "tests/server/actors/test_aggregator_losses.py": "connections that break, in real time",
    "tests/server/test_server.py": "servers in real time",
    "tests/test_bigdata.py": "benchmarks",
    "tests/test_compare.py": "benchmarks",
    "tests/test_wheel.py": "a wheel, built and installed",
    "tests/typing": "type checkers",
    "tests/upgrade": "two versions at once",
    "tests/web/test_browser.py": "Chromium",
    "tests/web/test_charts.py": "Prometheus",
    "tests/web/test_mounts.py": "Chromium, Django",
    "tests/web/test_other_sites.py": "Chromium",
}
"""Folders and files, each with what it needs."""
MARKS: Final = {
    "browser": "Chromium",
    "interop": "a real Go asynq",
    "slow": "more than a second of real time, or other programs",
}
"""Marks of single tests, each with what they need."""

_left_out: Counter[str] = Counter()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a folder or a file; pytest does not ask about what its command line names."""
    path = collection_path.relative_to(ROOT).as_posix() if collection_path.is_relative_to(ROOT) else ""
    return True if path in LEFT_OUT else None


def is_left_out(item: pytest.Item) -> bool:
    """Return whether a test is not one of the quick ones."""
    paths = [path.relative_to(ROOT).as_posix() for path in (item.path, *item.path.parents) if path.is_relative_to(ROOT)]
    return not LEFT_OUT.keys().isdisjoint(paths) or any(item.get_closest_marker(mark) for mark in MARKS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out single tests by their marks."""
    marks = [next((mark for mark in MARKS if item.get_closest_marker(mark)), None) for item in items]
    _left_out.update(mark for mark in marks if mark)
    config.hook.pytest_deselected(items=[item for item, mark in zip(items, marks, strict=True) if mark])
    items[:] = [item for item, mark in zip(items, marks, strict=True) if not mark]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what was counted to the process that prints it, where that is another."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take what a worker of xdist has counted; each of them has collected all."""
    _left_out.update(Counter(getattr(node, "workeroutput", {}).get("left_out", {})) - _left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and why."""
    terminalreporter.section("left out: make test-all runs it")
    for path, needs in LEFT_OUT.items():
        terminalreporter.line(f"{path}: {needs}")
    for mark, count in sorted(_left_out.items()):
        terminalreporter.line(f"{count} tests marked {mark}: {MARKS[mark]}")
