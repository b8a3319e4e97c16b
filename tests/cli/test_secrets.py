"""No command shows a password, whatever is wrong with the URL, the server or the login."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from fastq.cli.main import main
from tests.cli.commands import Fastq
from tests.ports import free_port
from tests.redis_servers import redis_server

SECRET = "S3CR3T"
COMMANDS = ("stats --json", "doctor", "doctor --json", "queue rm default --yes", "exporter --listen 127.0.0.1:0")
MALFORMED = (
    f"redis://:{SECRET}@h:port/1",
    f"redis://:{SECRET}@h:99999",
    f"redis://:{SECRET}@h/x",
    f"redis://:1/{SECRET}@h",
    f"redis://:1/{SECRET}/x@h",
    f"redis://:1/x/{SECRET}@h",
    f"redis://:1#{SECRET}@h",
    f"redis://:x?{SECRET}@h",
    f"redis://ann:{SECRET}",
    f":{SECRET}@h",
    f"ann:{SECRET}@h:1:2",
    f"http://:{SECRET}@h",
    f"redis://:{SECRET} @h\n",
    f"redis://h?ssl_password={SECRET}",
    f"rediss://:{SECRET}@h?ssl_cert_reqs=perhaps&ssl_password={SECRET}",
    f"rediss://h?ssl_certfile=/nowhere&ssl_password={SECRET}",
    f"redis-sentinel://:{SECRET}@h?password={SECRET}",
    f"unix://:{SECRET}@",
    f"unix:///s?password={SECRET}&db=x",
    f"embedded://:{SECRET}@/d",
)


@pytest.fixture(autouse=True)
def own_home(fastq: Fastq) -> None:
    """Keep the machine's own settings out."""


def failure(command: str, url: str) -> str:
    """Return everything that a command writes, which fails."""
    result = CliRunner().invoke(main, ["--redis", url, *command.split()], catch_exceptions=False)
    assert result.exit_code in (1, 2), (command, url, result.output)
    assert result.stderr.startswith(("fastq: ", "Usage: ")), (command, url, result.output)
    return result.output


@pytest.mark.parametrize("url", MALFORMED)
def test_a_bad_url_is_told_without_its_password(url: str) -> None:
    for command in COMMANDS:
        assert SECRET not in failure(command, url)


def test_a_server_that_cannot_be_used_is_told_without_the_password(tmp_path: Path) -> None:
    with redis_server(password="right") as server:
        nobody = free_port()
        for url in (
            f"unix://:{SECRET}@{server.socket_path}",
            f"unix://ann:{SECRET}@{server.socket_path}",
            f"redis://:{SECRET}@127.0.0.1:{nobody}",
            f"redis-cluster://:{SECRET}@127.0.0.1:{nobody}",
            f"unix://:{SECRET}@{tmp_path}/none",
        ):
            for command in ("stats --json", "doctor --json"):
                assert SECRET not in failure(command, url)
