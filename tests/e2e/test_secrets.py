"""A worker, the command and the web UI show the password of Redis nowhere, also when a login fails or a child dies."""

import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client
from fastq.web import FastqWeb
from tests.certificates import encrypted_key
from tests.cli.commands import Fastq
from tests.e2e.harness import workers_on
from tests.redis_servers import RedisServer, redis_sentinel, redis_server, tls_redis_server
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


@dataclass(frozen=True)
class Site:
    """A Redis, the URL with the password, and a way to have the password refused from then on, with these words."""

    server: RedisServer
    url: str
    refuse: Callable[[], object]
    refusal: str = "refuses the user name or password"


@contextmanager
def with_a_user(url: str, directory: Path) -> Iterator[Site]:
    """Run a Redis with a user."""
    (directory / "secret_login.py").write_text(f"def current():\n    return 'ann', '{SECRET}'\n")
    with redis_server() as server, server.client() as db:
        db.execute_command("ACL", "SETUSER", "ann", "on", "~*", "&*", "+@all", f">{SECRET}")

        def refuse() -> None:
            db.execute_command("ACL", "SETUSER", "ann", f"<{SECRET}", ">another")
            db.execute_command("CLIENT", "KILL", "USER", "ann")

        yield Site(server, url.format(secret=SECRET, path=server.socket_path), refuse)


@contextmanager
def behind_sentinels(_: Path) -> Iterator[Site]:
    """Run a master and a sentinel that ask for a password each."""
    with redis_sentinel(SECRET, SECRET) as setup, setup.master.client() as db, setup.sentinel(SECRET) as sentinel:

        def refuse() -> None:
            sentinel.execute_command("ACL", "SETUSER", "default", "resetpass", ">another")
            sentinel.execute_command("CLIENT", "KILL", "TYPE", "normal")
            db.execute_command("CLIENT", "KILL", "TYPE", "normal")

        url = f"redis-sentinel://:{SECRET}@127.0.0.1:{setup.sentinel_port}?master=mymaster&password={SECRET}"
        yield Site(setup.master, url, refuse)


@contextmanager
def with_an_encrypted_key(directory: Path) -> Iterator[Site]:
    """Run a Redis with TLS, for clients whose key is encrypted."""
    files = directory / "tls"
    files.mkdir()
    with tls_redis_server(files) as (server, port, authority):
        key = encrypted_key(files, SECRET)
        url = f"rediss://localhost:{port}?ssl_ca_certs={authority}&ssl_certfile={files / 'server.pem'}"
        url += f"&ssl_keyfile={key}&ssl_password={SECRET}"
        yield Site(server, url, partial(encrypted_key, files, "another"), "ssl_certfile: cannot use")


SITES: dict[str, Callable[[Path], AbstractContextManager[Site]]] = {
    **{name: partial(with_a_user, url) for name, url in URLS.items()},
    "of master and sentinels": behind_sentinels,
    "of an encrypted key": with_an_encrypted_key,
}


@pytest.mark.parametrize("site", SITES.values(), ids=SITES)
def test_no_door_shows_the_password(
    site: Callable[[Path], AbstractContextManager[Site]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FASTQ_AUDIT_LOG", str(tmp_path / "audit"))
    with site(tmp_path) as one, workers_on("", tmp_path) as workers, one.server.client() as db:
        with Client(one.url) as client:
            client.enqueue("ok")
            client.enqueue("fail", 1, max_retry=0)
            client.enqueue("exit", 3, max_retry=0)
        flags = "--metrics-listen", "127.0.0.1:0", "--task-log", "tasks", "--log-level", "debug", "--concurrency", "1"
        events = f"unix://:{one.server.password}@{one.server.socket_path}"
        worker = workers.start("--redis", one.url, *flags, env={"EVENTS_URL": events}).is_ready()
        wait_until(lambda: (tmp_path / "tasks").read_text().count('"end":"archived"') == 2)
        seen = {name: Fastq(one.url).run(*name.split()).output for name in COMMANDS}
        found = re.search(r"metrics at (\S+)/metrics", worker.text)
        assert found
        for path in ("/metrics", "/healthz"):
            with urllib.request.urlopen(found[1] + path) as answer:
                seen[path] = answer.read().decode()
        with serving(FastqWeb(one.url, auth=None)) as served:
            seen |= {f"web {page}": served.get(page).text for page in PAGES}
        one.refuse()
        if "password" in one.refusal:  # the worker has read its key already
            worker.wait_for(one.refusal)
        seen["refused"] = Fastq(one.url).run("stats", "--json").output
        seen["Redis"] = all_values(db).decode(errors="replace")
        worker.process.kill()
        worker.ended()
        seen |= {file.name: file.read_text() for file in tmp_path.iterdir() if file.suffix != ".py" and file.is_file()}
    assert '"pause' in seen["audit"]
    assert "fastq_tasks_total{" in seen["/metrics"]
    assert one.refusal in seen["refused"]
    assert [name for name, text in seen.items() if SECRET in text or not text] == []
