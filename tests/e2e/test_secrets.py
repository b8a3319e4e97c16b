"""A worker, the command and the web UI show the password of Redis nowhere, also when a login fails or a child dies."""

import re
import urllib.request
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client
from fastq.web import FastqWeb
from tests.cli.commands import Fastq
from tests.e2e.harness import workers_on
from tests.redis_servers import redis_server
from tests.waiting import wait_until
from tests.web.serving import serving

SECRET = "S3CR3T"
URLS = {
    "in the user part": "unix://ann:{secret}@{path}",
    "in the query": "unix://{path}?username=ann&password={secret}",
    "from a function": "unix://{path}?credentials=secret_login:current",
}
COMMANDS = ("server ls --json", "stats --json", "doctor --json", "queue pause default", "stats")
PAGES = (
    "/",
    "/queues/default/archived",
    "/redis",
    "/settings",
    "/doctor",
    "/servers",
    "/api/v1/servers",
    "/api/servers",
    "/api/redis_info",
)


def all_values(db: Redis) -> bytes:
    """Return what Redis holds."""
    db.config_set("rdbcompression", "no")
    return b"".join(db.dump(key) or b"" for key in db.scan_iter())


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_no_door_shows_the_password(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret_login.py").write_text(f"def current():\n    return 'ann', '{SECRET}'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FASTQ_AUDIT_LOG", str(tmp_path / "audit"))
    with redis_server() as server, workers_on("", tmp_path) as workers, server.client() as db:
        db.execute_command("ACL", "SETUSER", "ann", "on", "~*", "&*", "+@all", f">{SECRET}")
        full = url.format(secret=SECRET, path=server.socket_path)
        with Client(full) as client:
            client.enqueue("ok")
            client.enqueue("fail", 1, max_retry=0)
            client.enqueue("exit", 3, max_retry=0)
        flags = "--metrics-listen", "127.0.0.1:0", "--task-log", "tasks", "--log-level", "debug", "--concurrency", "1"
        worker = workers.start("--redis", full, *flags, env={"EVENTS_URL": server.url}).is_ready()
        wait_until(lambda: (tmp_path / "tasks").read_text().count('"end":"archived"') == 2)
        seen = {name: Fastq(full).run(*name.split()).output for name in COMMANDS}
        found = re.search(r"metrics at (\S+)/metrics", worker.text)
        assert found
        for path in ("/metrics", "/healthz"):
            with urllib.request.urlopen(found[1] + path) as answer:
                seen[path] = answer.read().decode()
        with serving(FastqWeb(full)) as served:
            seen |= {f"web {page}": served.get(page).text for page in PAGES}
        db.execute_command("ACL", "SETUSER", "ann", f"<{SECRET}", ">another")
        db.execute_command("CLIENT", "KILL", "USER", "ann")
        worker.wait_for("refuses the user name or password")
        seen["refused"] = Fastq(full).run("stats", "--json").output
        seen["Redis"] = all_values(db).decode(errors="replace")
        worker.process.kill()
        worker.ended()
        seen |= {file.name: file.read_text() for file in tmp_path.iterdir() if file.suffix != ".py" and file.is_file()}
    assert '"pause' in seen["audit"]
    assert "fastq_tasks_total{" in seen["/metrics"]
    assert "refuses the user name" in seen["refused"]
    assert [name for name, text in seen.items() if SECRET in text or not text] == []
