"""Settings from words: keyword, flag, environment and file say the same, in that order of rank."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click import ClickException

from fastq.cli.worker import _options, main
from fastq.server.base.config import ServerConfig
from fastq.server.base.settings import SETTINGS, build_config, from_environment, from_file, parse_setting

HOOK = "tests.server.base.test_config:hook"


class Example(NamedTuple):
    """One value of a setting: as a keyword, as text, and as TOML other than that text."""

    value: Any
    text: str
    toml: str


EXAMPLES: dict[str, list[Example]] = {
    "concurrency": [Example(3, "3", "3")],
    "queues": [
        Example(
            {"critical": 6, "default": 3, "low": 1},
            "critical=6, default=3,low",
            "{critical = 6, default = 3, low = 1}",
        ),
        Example({"mail:out": 1}, "mail:out", '{"mail:out" = 1}'),
        Example({"a=b": 2}, "a=b=2", '{"a=b" = 2}'),
        Example({"a:3": 2}, "a:3=2", '{"a:3" = 2}'),
    ],
    "strict_priority": [
        Example(True, "true", "true"),
        Example(True, "YES", "true"),
        Example(False, "off", "false"),
        Example(False, "0", "false"),
    ],
    "shutdown_timeout": [
        Example(1.5, "1.5", "1.5"),
        Example(timedelta(seconds=90), "1m30s", "90"),
        Example(0, "0", "0"),
    ],
    "task_check_interval": [Example(0.25, "250ms", "0.25")],
    "delayed_task_check_interval": [Example(2, "2", "2")],
    "health_check_interval": [Example(timedelta(minutes=1), "1m", "60")],
    "health_check": [Example(HOOK, HOOK, f'"{HOOK}"')],
    "janitor_interval": [Example(4, "4s", "4.0")],
    "janitor_batch_size": [Example(7, "7", "7")],
    "group_grace_period": [Example(2, "2s", "2")],
    "group_max_delay": [Example(30, "30", "30")],
    "group_max_size": [Example(20, "20", "20")],
    "group_aggregator": [Example(HOOK, HOOK, f"'{HOOK}'")],
    "retry_delay": [Example(HOOK, HOOK, f"'{HOOK}'")],
    "is_failure": [Example(HOOK, HOOK, f"'{HOOK}'")],
    "error_handler": [Example(HOOK, HOOK, f"'{HOOK}'")],
    "max_lost": [Example(0, "0", "0")],
    "takeover_after": [Example(timedelta(seconds=10), "10s", "10"), Example(0, "0", "0")],
    "unknown_tasks": [Example("return", "return", '"return"')],
    "start_method": [Example("spawn", "spawn", '"spawn"')],
    "loop": [Example("asyncio", "asyncio", '"asyncio"')],
    "devices": [Example([0, "GPU-7"], "0, GPU-7", '[0, "GPU-7"]')],
    "max_tasks_per_child": [Example(1000, "1000", "1000")],
    "max_memory_per_child": [
        Example(512 * 1024**2, "512M", "536870912"),
        Example(2 * 1024**3, "2GiB", '"2g"'),
        Example(1536, "1.5k", "1536"),
        Example(1000, "1000", "1000"),
    ],
    "memory_limit": [Example(1024**3, "1G", "1073741824")],
    "start_timeout": [Example(600, "10m", "600")],
    "timeout_grace": [Example(0, "0", "0")],
    "threads": [Example(50, "50", "50")],
    "async_concurrency": [Example(10, "10", "10")],
    "prefetch_time": [Example(0.01, "10ms", "0.01")],
    "archive_max": [
        Example(5, "5", "5"),
        Example({"critical": 100_000, "*": 7}, "critical=100000, *=7", '{critical = 100000, "*" = 7}'),
    ],
    "archive_ttl": [
        Example(86_400, "24h", "86400"),
        Example({"low": 60.0, "a=b": 90}, "low=1m,a=b=90s", '{low = "1m", "a=b" = 90}'),
    ],
    "archive_full": [
        Example("pause", "pause", '"pause"'),
        Example({"low": "trim", "*": "pause"}, "low=trim,*=pause", '{low = "trim", "*" = "pause"}'),
    ],
    "archive_spill_to": [Example("/var/spool/x", "/var/spool/x", '"/var/spool/x"')],
    "history": [Example(False, "no", "false"), Example(True, "yes", "true")],
    "log_level": [Example("debug", "debug", '"debug"')],
    "log_format": [Example("json", "json", '"json"')],
    "task_log": [Example("-", "-", '"-"')],
    "metrics_listen": [Example("[::1]:9464", "[::1]:9464", '"[::1]:9464"')],
    "log_tracebacks": [Example("always", "always", '"always"')],
}


def by_flags(name: str, text: str) -> ServerConfig:
    flag = f"--{name.replace('_', '-')}"
    words = [flag, text]
    if name in ("strict_priority", "history"):
        words = [flag if parse_setting(name, text) else f"--no-{flag[2:]}"]
    try:
        with main.make_context("fastq-worker", ["app:mux", *words]) as context:
            return _options(context.params).config
    except ClickException as error:
        raise ValueError(error.format_message()) from None


def by_file(directory: Path, name: str, toml: str) -> ServerConfig:
    file = directory / "settings.toml"
    file.write_text(f"{name} = {toml}\n")
    return build_config(from_file(file))


def test_every_setting_has_an_example() -> None:
    assert EXAMPLES.keys() == SETTINGS.keys()


@pytest.mark.parametrize(
    ("name", "example"), [(name, example) for name, examples in EXAMPLES.items() for example in examples]
)
def test_keyword_flag_environment_and_file_say_the_same(
    name: str, example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ServerConfig(**{name: example.value})
    assert by_flags(name, example.text) == expected
    assert build_config(from_environment({f"FASTQ_{name.upper()}": example.text})) == expected
    assert by_file(tmp_path, name, example.toml) == expected
    assert by_file(tmp_path, name.replace("_", "-"), f"'{example.text}'") == expected
    monkeypatch.setenv(f"FASTQ_{name.upper()}", example.text)
    with main.make_context("fastq-worker", ["app:mux"]) as context:
        assert _options(context.params).config == expected


def test_the_first_layer_that_has_a_setting_counts() -> None:
    config = build_config(
        {"concurrency": 1, "janitor_batch_size": None},
        {"concurrency": 2, "janitor_batch_size": 20},
        {"concurrency": 3, "janitor_batch_size": 30, "async_concurrency": 40},
    )
    assert (config.concurrency, config.janitor_batch_size, config.async_concurrency) == (1, 20, 40)


def test_a_variable_that_is_empty_or_of_nothing_of_ours_does_not_count() -> None:
    environment = {"FASTQ_CONCURRENCY": "", "FASTQ_REDIS_URL": "redis://x", "FASTQ_NOSUCH": "1", "CONCURRENCY": "3"}
    assert from_environment(environment) == {}


BAD: Mapping[str, list[tuple[str, str]]] = {
    "concurrency": [("many", "'many' is not a whole number"), ("1.5", "'1.5'"), ("0", "at least 1: 0")],
    "queues": [
        ("a=x", "the weight of queue 'a' is not a whole number: 'x'"),
        ("a=", "the weight of queue 'a' is not a whole number: ''"),
        (" , ", "','"),
        ("=3", "''"),
        ("a=1,a=2", "'a' is named twice"),
        ("a=4294967296", "4294967296"),
        ("a:3", "write a=3 for queue 'a' with weight 3, not 'a:3'"),
        ("tenant-*=1", "wildcards are not supported; name each queue"),
        ("a=0,b=0", "no queue has a weight above 0: {'a': 0, 'b': 0}"),
    ],
    "strict_priority": [("maybe", "'maybe' is neither true nor false")],
    "shutdown_timeout": [
        ("soon", "'soon' is neither seconds nor a duration"),
        ("-1", "at least 0"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("1e400", "1e400|inf"),
    ],
    "max_memory_per_child": [("lots", "'lots' is not a size"), ("-1", "'-1'"), ("5 parsecs", "'5 parsecs'")],
    "unknown_tasks": [("requeue", "'requeue'")],
    "start_method": [("fork", "'fork'")],
    "loop": [("libuv", "'libuv'")],
    "log_level": [("loud", "'loud'")],
    "archive_max": [
        ("0", "must be at least 1: 0"),
        ("low=many", "'many' is not a whole number"),
        ("low=1,9", "'9' is not QUEUE=VALUE; write for example critical=100000,.=10000"),
        ("low=1,low=2", "queue 'low' is named twice"),
    ],
    "archive_full": [
        ("spil", "must be one of trim, pause, spill: 'spil'"),
        ("low=spill", "spill needs archive_spill_to, the directory to write to"),
    ],
    "error_handler": [("nocolon", "'nocolon' is not of the form module:attr")],
}


@pytest.mark.parametrize(
    ("name", "text", "says"), [(name, text, says) for name, cases in BAD.items() for text, says in cases]
)
def test_bad_text_is_said_with_the_setting_and_the_value(name: str, text: str, says: str, tmp_path: Path) -> None:
    named = name.replace("_", "[-_]")
    attempts: list[Callable[[], object]] = [
        lambda: by_flags(name, text),
        lambda: build_config(from_environment({f"FASTQ_{name.upper()}": text})),
        lambda: by_file(tmp_path, name, f"'{text}'"),
    ]
    for attempt in attempts:
        with pytest.raises((ValueError, TypeError), match=f"(?i){named}.*({says})"):
            attempt()


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ValueError, match="FASTQ_CONCURRENCY: concurrency: 'x' is not a whole number"):
        from_environment({"FASTQ_CONCURRENCY": "x"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("concurency = 3", "unknown setting 'concurency'"),
        ("concurrency = ", "is not TOML"),
        ("concurrency = 3\nconcurrency = 4", "is not TOML"),
        ("[server]\nconcurrency = 3", "unknown setting 'server'"),
    ],
)
def test_a_bad_file_is_named(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=says) as raised:
        from_file(file)
    assert str(file) in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(f"cannot read {tmp_path / 'nosuch'}: No such file")):
        from_file(tmp_path / "nosuch")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not TOML"):
        from_file(tmp_path / "binary")


def test_a_file_may_hold_what_the_command_takes_besides(tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text('app = "myapp:mux"\nredis = "redis://x"\nburst = true\nconnect-timeout = 3\nconcurrency = 2\n')
    assert from_file(file) == {
        "app": "myapp:mux",
        "redis": "redis://x",
        "burst": True,
        "connect_timeout": 3,
        "concurrency": 2,
    }
