"""ServerConfig: what each setting takes, and that what it does not take is said with its name and value."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, fields
from datetime import timedelta
from typing import Any

import pytest

from fastq.common.cpus import whole_cpus
from fastq.server.base import config as config_module
from fastq.server.base.config import ServerConfig, seconds_of, setting_kind
from fastq.wire.messages import ServerInfoMessage
from fastq.wire.records import decode_server_info, encode_server_info


def hook(*_: object) -> None:
    """A hook that child processes can import."""


def test_the_defaults_are_asynqs_where_asynq_has_them() -> None:
    config = ServerConfig()
    assert dict(config.queues) == {"default": 1}
    assert config.concurrency == whole_cpus() >= 1
    assert not config.strict_priority
    seconds = {
        "shutdown_timeout": 8,
        "task_check_interval": 1,
        "delayed_task_check_interval": 5,
        "health_check_interval": 15,
        "janitor_interval": 8,
        "group_grace_period": 60,
        "group_max_delay": 0,
        "start_timeout": 60,
        "timeout_grace": 5,
        "prefetch_time": 0.05,
    }
    assert {name: seconds_of(getattr(config, name)) for name in seconds} == seconds
    assert (config.janitor_batch_size, config.group_max_size) == (100, 0)
    assert (config.max_tasks_per_child, config.max_memory_per_child, config.async_concurrency) == (0, 0, 100)
    assert (config.start_method, config.log_level, config.log_format) == ("forkserver", "info", "text")
    assert config.loop == "asyncio"
    hooks = ("health_check", "group_aggregator", "retry_delay", "is_failure", "error_handler")
    assert [getattr(config, name) for name in hooks] == [None] * 5


def test_every_setting_has_a_kind_that_is_checked_and_a_help() -> None:
    for setting in fields(ServerConfig):
        assert setting_kind(setting) in config_module._CHECKS
        assert setting.metadata["help"]


def test_a_configuration_cannot_be_changed() -> None:
    config = ServerConfig()
    with pytest.raises(FrozenInstanceError):
        config.concurrency = 3  # type: ignore[misc]  # what is tested


@pytest.mark.parametrize("value", [timedelta(seconds=90), 90, 90.0])
def test_durations_are_seconds_or_timedeltas(value: Any) -> None:
    assert ServerConfig(shutdown_timeout=value).shutdown_timeout == 90.0


def test_hooks_are_names_or_functions_that_have_one() -> None:
    name = "tests.server.base.test_config:hook"
    assert ServerConfig(error_handler=hook).error_handler == name
    assert ServerConfig(error_handler=name).error_handler == name


def test_queues_without_weight_are_dropped_as_asynq_does() -> None:
    assert dict(ServerConfig(queues={"a": 3, "b": 0, "c": -1}).queues) == {"a": 3}
    assert dict(ServerConfig(queues={}).queues) == {"default": 1}


def test_queues_are_the_servers_own() -> None:
    given = {"a": 3}
    config = ServerConfig(queues=given)
    given["b"] = 1
    assert dict(config.queues) == {"a": 3}


def test_the_largest_weight_can_be_published() -> None:
    config = ServerConfig(queues={"a": 2**31 - 1})
    info = ServerInfoMessage(
        host="h",
        pid=1,
        server_id="s",
        concurrency=config.concurrency,
        queues=config.queues,
        strict_priority=False,
        status="active",
        start_time=None,
        active_worker_count=0,
    )
    assert decode_server_info(encode_server_info(info)).queues == {"a": 2**31 - 1}


@pytest.mark.parametrize("given", ["0,GPU-7", " 0 , GPU-7 ", [0, "GPU-7"], ("0", "GPU-7")])
def test_devices_are_named_in_any_form(given: Any) -> None:
    config = ServerConfig(devices=given)
    assert config.devices == ("0", "GPU-7")
    assert ServerConfig(**json.loads(json.dumps(asdict(config)))) == config


def test_there_is_a_child_for_each_device_unless_said_otherwise() -> None:
    assert ServerConfig(devices="0,1,2").concurrency == 3
    assert ServerConfig(devices="0,1,2", concurrency=5).concurrency == 5
    assert type(ServerConfig().concurrency) is type(ServerConfig(devices="0").concurrency) is int


def test_auto_takes_the_devices_that_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert ServerConfig(devices="auto").devices == ("4", "6")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ValueError, match="devices: auto finds no GPU"):
        ServerConfig(devices="auto")


def test_devices_that_the_environment_hides_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert ServerConfig(devices=[6]).devices == ("6",)
    with pytest.raises(ValueError, match="devices: device 0 is not among those of CUDA_VISIBLE_DEVICES='4,6'"):
        ServerConfig(devices=[0])


def local() -> Callable[..., object]:
    def inner() -> None:
        """A hook that no child can import."""

    return inner


BAD: list[tuple[str, object, type[Exception], str]] = [
    ("concurrency", 0, ValueError, "concurrency must be at least 1: 0"),
    ("concurrency", 4097, ValueError, "concurrency must be at most 4096: 4097"),
    ("concurrency", True, TypeError, "concurrency must be an int, not bool: True"),
    ("concurrency", "4", TypeError, "concurrency must be an int, not str: '4'"),
    ("concurrency", 4.0, TypeError, "concurrency must be an int, not float: 4.0"),
    ("shutdown_timeout", -1, ValueError, "shutdown_timeout must be at least 0: -1"),
    ("shutdown_timeout", timedelta(seconds=-1), ValueError, "shutdown_timeout must be at least 0: datetime"),
    ("shutdown_timeout", "8", TypeError, "shutdown_timeout .*'8'"),
    ("shutdown_timeout", None, TypeError, "shutdown_timeout .*None"),
    ("shutdown_timeout", True, TypeError, "shutdown_timeout .*True"),
    ("shutdown_timeout", math.nan, ValueError, "shutdown_timeout .*nan"),
    ("shutdown_timeout", math.inf, ValueError, "shutdown_timeout .*inf"),
    ("task_check_interval", 0, ValueError, "task_check_interval must be at least 0.001: 0"),
    ("delayed_task_check_interval", 0, ValueError, "delayed_task_check_interval must be at least 0.01: 0"),
    ("health_check_interval", 0, ValueError, "health_check_interval must be at least 0.01: 0"),
    ("janitor_interval", 0, ValueError, "janitor_interval must be at least 0.01: 0"),
    ("janitor_batch_size", 0, ValueError, "janitor_batch_size must be at least 1: 0"),
    ("janitor_batch_size", 1001, ValueError, "janitor_batch_size must be at most 1000: 1001"),
    ("group_grace_period", 0.5, ValueError, "group_grace_period must be at least 1: 0.5"),
    ("group_max_delay", -1, ValueError, "group_max_delay must be at least 0: -1"),
    ("group_max_size", 5001, ValueError, "group_max_size must be at most 5000: 5001"),
    ("max_tasks_per_child", -1, ValueError, "max_tasks_per_child must be at least 0: -1"),
    ("max_memory_per_child", -1, ValueError, "max_memory_per_child must be at least 0: -1"),
    ("timeout_grace", -1, ValueError, "timeout_grace must be at least 0: -1"),
    ("async_concurrency", 0, ValueError, "async_concurrency must be at least 1: 0"),
    ("prefetch_time", 0, ValueError, "prefetch_time must be at least 0.001: 0"),
    ("strict_priority", 1, TypeError, "strict_priority must be True or False, not 1"),
    ("start_method", "fork", ValueError, "start_method must be one of forkserver, spawn: 'fork'"),
    ("start_method", ["spawn"], ValueError, r"start_method must be one of forkserver, spawn: \['spawn'\]"),
    ("log_level", "loud", ValueError, "log_level must be one of debug, info, warning, error: 'loud'"),
    ("log_format", "xml", ValueError, "log_format must be one of text, json: 'xml'"),
    ("metrics_listen", 9464, TypeError, "metrics_listen must be HOST:PORT, not 9464"),
    *(
        (
            "metrics_listen",
            address,
            ValueError,
            re.escape(f"metrics_listen must be HOST:PORT, for example 127.0.0.1:9464, not {address!r}"),
        )
        for address in ("9464", ":9464", "host:", "host:http", "host:65536", "::1:9464", "[host]:1", "host:-1")
    ),
    ("log_tracebacks", "some", ValueError, "log_tracebacks must be one of never, archived, always: 'some'"),
    ("devices", "0,0", ValueError, "devices: a device is named twice; .*'0,0'"),
    ("devices", "0,,1", ValueError, "devices: '' is neither the number nor the UUID of a device: '0,,1'"),
    ("devices", [-1], ValueError, r"devices: '-1' is neither the number nor the UUID of a device: \[-1\]"),
    ("devices", 4, TypeError, r"devices must be 'auto', or name devices as in '0,1' or \[0, 1\], not 4"),
    ("devices", [True], TypeError, r"devices must be 'auto', .* not \[True\]"),
    ("devices", [0.5], TypeError, r"devices must be 'auto', .* not \[0.5\]"),
    ("queues", ["a"], TypeError, r"queues must map queue names to weights, not \['a'\]"),
    ("queues", {"": 1}, ValueError, "queues: .*''"),
    ("queues", {" ": 1}, ValueError, "queues: .*' '"),
    ("queues", {5: 1}, TypeError, "queues: .*5"),
    ("queues", {"a}b": 1}, ValueError, "queues: .*'a}b'"),
    ("queues", {"a": "1"}, TypeError, "queues: the weight of queue 'a' must be an int: '1'"),
    ("queues", {"a": True}, TypeError, "queues: the weight of queue 'a' must be an int: True"),
    ("queues", {"a": 2**31}, ValueError, "queues: the weight of queue 'a' must be at most 2147483647: 2147483648"),
    ("error_handler", "nocolon", ValueError, "error_handler: 'nocolon' is not of the form module:attr"),
    ("is_failure", 5, TypeError, "is_failure must be callable or named 'module:attr', not 5"),
    ("retry_delay", local(), TypeError, "retry_delay must be named 'module:attr'"),
    ("health_check", lambda: None, TypeError, "health_check must be named 'module:attr'"),
    ("group_aggregator", "", ValueError, "group_aggregator: '' is not of the form module:attr"),
]


@pytest.mark.parametrize(("name", "value", "kind", "message"), BAD)
def test_what_a_setting_does_not_take_is_said_with_its_name_and_value(
    name: str, value: object, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as raised:
        ServerConfig(**{name: value})  # type: ignore[arg-type]  # what is tested
    assert re.match(rf"{name}\b", str(raised.value)), "the first word is the setting"
