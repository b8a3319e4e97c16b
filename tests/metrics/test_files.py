"""The alerts and the dashboard: every alert fires and has its runbook, and every metric in them exists."""

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest
from redis import Redis

from fastq import Inspector, Limit, SchedulerEntry
from fastq.cli.main import main
from fastq.metrics import QueueCollector
from tests.cli.commands import fill
from tests.cli.dash.scene import publish_entries
from tests.promtool import promtool

ROOT = Path(__file__).parents[2]
RUNBOOKS = (ROOT / "docs" / "alerts.md").read_text()
OF_WORKERS, _, OF_QUEUES = (ROOT / "docs" / "metrics.md").read_text().partition("## Queues")


def printed(*words: str) -> str:
    result = CliRunner().invoke(main, ["metrics", *words])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def expressions() -> list[str]:
    """Return what the panels of the dashboard ask."""
    found = json.loads(printed("dashboard"))
    return [target["expr"] for panel in found["panels"] for target in panel.get("targets", ())]


def test_each_alert_fires_on_its_series(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(printed("rules"))
    shutil.copy(Path(__file__).with_name("alerts.yml"), tmp_path)
    assert "rules found" in promtool("check", "rules", "rules.yml", at=tmp_path)
    assert "SUCCESS" in promtool("test", "rules", "alerts.yml", at=tmp_path)
    alerts = re.findall(r"- alert: (\w+)", printed("rules"))
    tested = re.findall(r"alertname: (\w+)", (tmp_path / "alerts.yml").read_text())
    assert tested == alerts


def test_prometheus_reads_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    texts = [text.replace("$__rate_interval", "5m") for text in expressions()]
    rules = [f"  - record: panel:{n}\n    expr: {json.dumps(text)}\n" for n, text in enumerate(texts)]
    (tmp_path / "panels.yml").write_text("groups:\n- name: panels\n  rules:\n" + "".join(rules))
    assert f"{len(texts)} rules found" in promtool("check", "rules", "panels.yml", at=tmp_path)


def test_each_alert_has_a_runbook_under_its_link() -> None:
    rules = printed("rules", "--runbooks", "https://wiki.example/alerts")
    alerts = re.findall(r"- alert: (\w+)", rules)
    assert re.findall(r"runbook_url: (.*)", rules) == [f"https://wiki.example/alerts#{name.lower()}" for name in alerts]
    assert re.findall(r"^## (Fastq\w+)$", RUNBOOKS, re.MULTILINE) == alerts


def test_the_metrics_of_alerts_and_dashboard_are_those_of_exporter_and_workers(db: Redis, url: str) -> None:
    fill(db, url)
    publish_entries(db, SchedulerEntry("id", "@daily", "t", b"", (), None, datetime.now(UTC)))
    registry = CollectorRegistry()
    with Inspector(url) as inspector:
        inspector.set_limit("default", "openai:*", Limit(2))
        inspector.set_max_pending("default", 1000)
        registry.register(QueueCollector(inspector))
        shown = set(re.findall(r"^(\w+)", generate_latest(registry).decode(), re.MULTILINE))
    assert {name for name in shown if name.startswith("fastq_")} == documented(OF_QUEUES)
    # tests/server/monitoring/test_listener.py holds the documents against what a worker shows.
    assert named_metrics() - shown - documented(OF_WORKERS) == set()


def documented(text: str) -> set[str]:
    """Return the metrics in the tables of a page."""
    cells = re.findall(r"^\| (`(?:fastq|process)_.*?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"\w+", cell)}


def named_metrics() -> set[str]:
    """Return the names of the metrics in the alerts and the dashboard; without the parts of histograms."""
    text = printed("rules") + " ".join(expressions())
    names = re.findall(r"\b(?:fastq|asynq|process)_\w+", text)
    return {re.sub("_(bucket|sum|count)$", "", name) for name in names}
