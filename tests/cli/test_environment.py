"""The variables of the environment: misspelled ones are errors, unknown ones are named, Kubernetes' are passed over."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from fastq.broker.transport.uri import default_url
from fastq.cli.environment import KNOWN_VARIABLES, check_environment
from fastq.cli.main import main as fastq
from fastq.cli.worker import main
from tests.cli.commands import Fastq, commands_of


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("FASTQ_CONCURENCY", "FASTQ_CONCURRENCY"),
        ("FASTQ_QUEUE", "FASTQ_QUEUES"),
        ("FASTQ_LOGLEVEL", "FASTQ_LOG_LEVEL"),
        ("FASTQ_REDIS_URI", "FASTQ_REDIS_URL"),
        ("FASTQ_Concurrency", "FASTQ_CONCURRENCY"),
    ],
)
def test_a_misspelled_variable_is_an_error_that_names_the_right_one(variable: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"^\${variable} is not a setting; did you mean \${meant}\?$"):
        check_environment({"PATH": "/bin", variable: "1"})


@pytest.mark.parametrize("variable", ["FASTQ_APP_ENV", "FASTQ_SENTRY_DSN", "FASTQ_REDIS_HOST"])
def test_another_variable_is_a_warning(variable: str) -> None:
    assert check_environment({variable: "x"}) == [f"${variable} is not a setting of fastq and is ignored"]


def test_what_fastq_reads_and_what_kubernetes_sets_is_no_mistake() -> None:
    service = {
        "FASTQ_REDIS_SERVICE_HOST": "10.0.0.1",
        "FASTQ_REDIS_SERVICE_PORT": "6379",
        "FASTQ_REDIS_SERVICE_PORT_HTTP": "80",
        "FASTQ_REDIS_PORT": "tcp://10.0.0.1:6379",
        "FASTQ_REDIS_PORT_6379_TCP": "tcp://10.0.0.1:6379",
        "FASTQ_REDIS_PORT_6379_TCP_ADDR": "10.0.0.1",
    }
    assert check_environment({**service, **dict.fromkeys(KNOWN_VARIABLES, "x")}) == []


def variables_of(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or ()
    for one in commands_of(command).values() if isinstance(command, click.Group) else ():
        yield from variables_of(one)


def test_each_variable_of_a_command_is_known() -> None:
    own = {variable for variable in (*variables_of(fastq), *variables_of(main)) if variable.startswith("FASTQ_")}
    assert own - KNOWN_VARIABLES == set()


def test_redis_is_named_by_either_variable_but_not_by_two_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTQ_REDIS_URL", raising=False)
    monkeypatch.setenv("FASTQ_REDIS", "redis://a")
    assert default_url() == "redis://a"
    monkeypatch.setenv("FASTQ_REDIS_URL", "redis://a")
    assert default_url() == "redis://a"
    monkeypatch.setenv("FASTQ_REDIS_URL", "redis://b")
    with pytest.raises(ValueError, match=r"\$FASTQ_REDIS_URL and \$FASTQ_REDIS name different servers"):
        default_url()


def test_each_command_says_so(url: str) -> None:
    typo, other = {"FASTQ_CONCURENCY": "3"}, {"FASTQ_APP_ENV": "test"}
    failed = Fastq(url).run("queue", "ls", env=typo)
    assert (failed.exit_code, "did you mean $FASTQ_CONCURRENCY?" in failed.stderr) == (2, True)
    warned = Fastq(url).run("queue", "ls", env=other)
    assert (warned.exit_code, warned.stderr) == (0, "fastq: $FASTQ_APP_ENV is not a setting of fastq and is ignored\n")
    worker = CliRunner().invoke(main, ["tests.e2e.apps:mux"], env=typo)
    assert (worker.exit_code, "did you mean $FASTQ_CONCURRENCY?" in worker.stderr) == (2, True)
