"""Which Redis ``fastq`` talks to: options, environment, file."""

from pathlib import Path

import click
import pytest

from fastq.cli.connection import connection_options, redis_url, runner_url
from tests.cli.commands import NOWHERE, Fastq


@pytest.fixture(autouse=True)
def own_home(fastq: Fastq) -> None:
    """Keep the machine's own settings out."""


def url_of(*words: str) -> str:
    command = click.Command("c", params=connection_options(hidden=False))
    return redis_url(command.make_context("c", list(words)))


@pytest.mark.parametrize(
    ("words", "url"),
    [
        ("", "redis://127.0.0.1:6379/0"),
        ("-u redis.example:6380", "redis://redis.example:6380"),
        ("--uri redis.example --db 3", "redis://redis.example/3"),
        ("--redis redis://ann:old@host/1?x=1 -n 2 -p n@w/", "redis://ann:n%40w%2F@host/2?x=1"),
        ("-u host -U ann", "redis://ann@host"),
        ("-u host -p s", "redis://:s@host"),
        ("-u host --tls", "rediss://host"),
        ("-u rediss://host --tls", "rediss://host"),
        ("-u host --tls_server name", "rediss://host?ssl_server_name=name"),
        ("-u host --redis-credentials m.n:f", "redis://host?credentials=m.n%3Af"),
        (
            "-u unix:///r.sock?credentials=/old --redis-credentials ./new",
            "unix:///r.sock?credentials=.%2Fnew&credentials=/old",
        ),
        ("-u host --insecure", "rediss://host?ssl_cert_reqs=none"),
        ("-u rediss://host?ssl_ca_certs=f --insecure", "rediss://host?ssl_cert_reqs=none&ssl_ca_certs=f"),
        ("-u unix:///r.sock?db=1 -n 2 -p s", "unix:///r.sock?db=2&password=s&db=1"),
        ("-u redis-sentinel://h1,h2/1?master=m -n 2 -p s", "redis-sentinel://h1,h2/2?password=s&master=m"),
        ("--cluster", "redis-cluster://" + ",".join(f"127.0.0.1:{port}" for port in range(7000, 7006))),
        ("--cluster -u host:7000 -p s", "redis-cluster://:s@host:7000"),
        ("--cluster_addrs a:1,b:2 --tls", "rediss-cluster://a:1,b:2"),
        ("-u redis-sentinel://h/1?master=m --tls -n 2", "rediss-sentinel://h/2?master=m"),
        ("-u rediss-sentinel://:sp@h?master=m -p s", "rediss-sentinel://:sp@h?password=s&master=m"),
        ("-u redis-sentinel://h?master=m --insecure", "rediss-sentinel://h?ssl_cert_reqs=none&master=m"),
        ("--cluster-addrs a:1", "redis-cluster://a:1"),
    ],
)
def test_options_make_a_url(words: str, url: str) -> None:
    assert url_of(*words.split()) == url


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("-u unix:///r.sock --tls", "--tls goes with redis://, redis-cluster://, redis-sentinel://, not with unix://"),
        ("-u redis://:s@h --redis-credentials m:f", "credentials go neither with a password nor "),
        ("-u h --redis-credentials m.f", "credentials must be module:function or the path of a file, not 'm.f'"),
        ("-u redis://h --cluster", "write redis-cluster://host:port"),
        ("--cluster -n 3", "a cluster has database 0 only, not 3"),
        ("-u rediss://h?ssl_cert_reqs=perhaps", "ssl_cert_reqs must be none or required, not 'perhaps'"),
    ],
)
def test_options_that_contradict_each_other_are_misuse(words: str, text: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        url_of(*words.split())
    assert text in caught.value.message


@pytest.mark.parametrize("words", [["--redis", ""], ["-u", " "], ["--cluster", "-u", ""]])
def test_an_empty_url_is_misuse(words: list[str]) -> None:
    with pytest.raises(
        click.UsageError, match=r"--redis, or redis in the file, is empty: ' ?'; leave it out for redis"
    ):
        url_of(*words)


def test_an_empty_url_is_misuse_for_what_runs_an_app_and_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('redis = ""')
    with pytest.raises(click.UsageError, match="is empty: ''"):
        url_of("--config", str(file))
    for option, said in (("", {}), (None, {"redis": ""})):
        with pytest.raises(ValueError, match="is empty: ''"):
            runner_url({"redis": option}, said)


def test_the_environment_gives_what_options_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTQ_REDIS_URL", "redis://host:1/4")
    monkeypatch.setenv("FASTQ_PASSWORD", "secret")
    assert url_of() == "redis://:secret@host:1/4"
    assert url_of("-n", "5") == "redis://:secret@host:1/5"
    monkeypatch.setenv("FASTQ_DB", "many")
    with pytest.raises(click.UsageError, match="FASTQ_DB: 'many' is not a whole number"):
        url_of()


@pytest.mark.parametrize(
    ("environment", "words", "url"),
    [
        ("CLUSTER_ADDRS=prod1:7000 TLS=1 DB=1 USERNAME=ann PASSWORD=prod", "-u staging:6379", "redis://staging:6379"),
        ("CLUSTER=1", "-u staging:6379", "redis://staging:6379"),
        ("PASSWORD=prod", "--cluster-addrs c:7000", "redis-cluster://c:7000"),
        ("REDIS_URL=redis://:prod@prod:6379/5", "--cluster-addrs c:7000", "redis-cluster://c:7000"),
        ("REDIS_URL=redis://:prod@prod:6379/5 PASSWORD=prod", "--config {file}", "redis://staging:6379/0"),
    ],
)
def test_nothing_of_the_environment_goes_to_a_server_that_the_command_line_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: str, words: str, url: str
) -> None:
    file = tmp_path / "staging.toml"
    file.write_text('redis = "redis://staging:6379/0"\n')
    for pair in environment.split():
        name, _, value = pair.partition("=")
        monkeypatch.setenv(f"FASTQ_{name}", value)
    assert url_of(*words.format(file=file).split()) == url


@pytest.mark.parametrize(
    "url",
    ["redis://ann:own@h/3", "unix:///r.sock?db=3&username=ann&password=own", "rediss-cluster://ann:own@h:1/0"],
)
def test_what_a_url_says_itself_gives_way_to_options_only(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name, value in (("DB", "1"), ("USERNAME", "bob"), ("PASSWORD", "other"), ("REDIS_URL", url)):
        monkeypatch.setenv(f"FASTQ_{name}", value)
    assert url_of() == url
    assert "mine" in url_of("-p", "mine")


def test_two_servers_on_one_command_line_are_misuse() -> None:
    with pytest.raises(click.UsageError, match="--redis and --cluster-addrs both name a server"):
        url_of("-u", "redis://h", "--cluster-addrs", "c:7000")


@pytest.mark.parametrize("words", [(), ("-u", "redis://h")])
def test_a_file_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setenv("FASTQ_REDIS_URL", "redis://prod")
    with pytest.raises(click.UsageError, match=r"cannot read /nowhere\.toml"):
        url_of("--config", "/nowhere.toml", *words)


def test_the_environment_counts_for_what_runs_apps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner_url({}, {}) is None
    monkeypatch.setenv("FASTQ_DB", "3")
    monkeypatch.setenv("FASTQ_PASSWORD", "secret")
    assert runner_url({}, {}) == "redis://:secret@127.0.0.1:6379/3"
    assert runner_url({}, {"redis": "redis://h"}) == "redis://:secret@h/3"
    assert runner_url({"redis": "redis://h"}, {"redis": "redis://other"}) == "redis://h"
    monkeypatch.setenv("FASTQ_REDIS_URL", "host:1")
    assert runner_url({}, {"redis": "redis://other"}) == "redis://:secret@host:1/3"
    for name in ("PASSWORD", "DB"):
        monkeypatch.delenv(f"FASTQ_{name}")
    monkeypatch.setenv("FASTQ_REDIS_CREDENTIALS", "m:f")
    assert runner_url({}, {}) == "redis://host:1?credentials=m%3Af"
    assert runner_url({"redis_credentials": "m:g"}, {}) == "redis://host:1?credentials=m%3Ag"
    monkeypatch.delenv("FASTQ_REDIS_CREDENTIALS")
    monkeypatch.delenv("FASTQ_REDIS_URL")
    assert runner_url({}, {"redis": "redis://h", "redis_credentials": "/run/pw"}) == "redis://h?credentials=%2Frun%2Fpw"


FILE = 'uri = "host:1"\npassword = "secret"\ndb = 2\ncluster_addrs = []\nconcurrency = 3\n'


def test_the_file_gives_what_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fastq").mkdir()
    (tmp_path / "fastq" / "config.toml").write_text(FILE)
    named = tmp_path / "named.toml"
    named.write_text('cluster-addrs = ["a:1", "b:2"]\ntls = true\n')
    assert url_of() == "redis://:secret@host:1/2"
    assert url_of("--db", "3") == "redis://:secret@host:1/3"
    assert url_of("--config", str(named)) == "rediss-cluster://a:1,b:2"
    monkeypatch.setenv("FASTQ_CONFIG", str(named))
    assert url_of() == "rediss-cluster://a:1,b:2"


def test_the_files_password_goes_to_no_other_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fastq").mkdir()
    (tmp_path / "fastq" / "config.toml").write_text(FILE)
    assert url_of("-u", "other") == "redis://other"
    monkeypatch.setenv("FASTQ_REDIS_URL", "redis://third")
    assert url_of() == "redis://third"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("redsi = 'x'", "unknown setting 'redsi'; did you mean 'redis'?"),
        ("wxyz = 1", "unknown setting 'wxyz'; settings are redis, db, "),
        ("redis = 5", "redis in {file}: 5 is not a string"),
        ("db = 'x'", "db in {file}: 'x' is not a whole number"),
        ("tls = 'perhaps'", "tls in {file}: 'perhaps' is neither true nor false"),
        ("redis = ", "is not TOML"),
    ],
)
def test_a_bad_file_is_misuse(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "fastq.toml"
    file.write_text(text)
    with pytest.raises(click.UsageError) as caught:
        url_of("--config", str(file))
    assert error.format(file=file) in caught.value.message
    with pytest.raises(click.UsageError, match=r"cannot read /nowhere.toml: No such file"):
        url_of("--config", "/nowhere.toml")


def test_options_may_stand_before_and_behind_a_command(filled: Fastq) -> None:
    elsewhere = Fastq(NOWHERE)
    assert elsewhere.done("queue", "ls", "-u", filled.url) == filled.done("queue", "ls")
    assert elsewhere.done("queue", "-u", filled.url, "ls") == filled.done("queue", "ls")
    assert filled.done("-n", "1", "queue", "ls") == ""
