"""The page about the log shows what is printed."""

import re
from pathlib import Path

from fastq import Client
from tests.docs.blocks import ROOT, blocks_of
from tests.e2e.harness import workers_on

PAGE = ROOT / "docs" / "logging.md"
VARYING = {
    r"^fastq-worker: \$.*\n": "",  # the harness' variable
    r"pid=\d+ \S+ \S+": "pid=1 date time",
    r"fastq \d+\.\d+\.\d+\w* on": "fastq 1.2.3 on",
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "id",
    r"next try in \w+": "next try in 15s",
    r" after 0\.\d+ s:": " after 0.001 s:",
    r"Redis \S+ at \S+;": "Redis 7 here;",
    r"on Python \S+ serves \S+": "on Python 3 serves tasks:mux",
    r'File "\S+/tasks.py"': 'File "tasks.py"',
    r", \d+ returned": "",
    r"^ +[~^]+\n": "",  # only some Pythons draw them
    r"^fastq: pid=.* pool: importing .*\n": "",  # where that takes a while
    r"^fastq: pid=.* (trying again until it works|succeed again after .*)\n": "",  # where Redis stands still
}


def settled(text: str) -> list[str]:
    """Replace what differs from run to run, and sort: lines of two processes come in any order."""
    for pattern, stands_for in VARYING.items():
        text = re.sub(pattern, stands_for, text, flags=re.MULTILINE)
    return sorted(text.splitlines())


def test_the_log_of_the_page_is_what_its_app_prints(url: str, tmp_path: Path) -> None:
    app, shown = blocks_of(PAGE)[:2]
    (tmp_path / "tasks.py").write_text(app.code)
    with Client(url) as client, workers_on(url, tmp_path) as workers:
        client.enqueue("mail:send", {"to": "ada"})
        client.enqueue("report:build", {"sum": 1})
        client.enqueue("report:build", {"sum": 1}, max_retry=0)
        client.enqueue("mean", retention=60)
        worker = workers.start("--burst", "--concurrency", "1", app="tasks:mux", env={"PYTHONPATH": str(tmp_path)})
        assert worker.ended() == 0, worker.text
        assert settled(worker.text) == settled(shown.code)
