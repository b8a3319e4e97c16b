"""A server's settings from text: command line, environment, TOML file; all derived from ``ServerConfig``'s fields.

A flag takes precedence over ``$FASTQ_<NAME>``, the variable over the file, the file over the default.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Final

from fastq.common.times import read_duration
from fastq.server.base.config import ServerConfig, setting_kind

SETTINGS: Final[Mapping[str, Field[Any]]] = {setting.name: setting for setting in fields(ServerConfig)}
EXTRA_KEYS: Final = (
    "app",
    "redis",
    "redis_credentials",
    "burst",
    "exit_when_idle",
    "max_tasks",
    "reload",
    "connect_timeout",
)
"""Further keys that a file may have: settings of ``fastq-worker`` that are not the server's."""

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b?)", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_FLAGS: Final = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


def parse_setting(name: str, text: str) -> Any:
    """Turn a setting's text into its value; ``ValueError`` names the setting and the form that it takes."""
    kind = setting_kind(SETTINGS[name])
    try:
        if kind == "by_queue":
            return _by_queue(SETTINGS[name].metadata["each"], text)
        return parse_kind(kind, text)
    except ValueError as error:
        raise ValueError(f"{name.replace('_', '-')}: {error}") from None


def parse_kind(kind: str, text: str) -> Any:
    """Turn text into a value of a kind that ``setting_kind`` returns; ``ValueError`` names the form that it takes."""
    return _PARSERS[kind](text.strip())


def build_config(*layers: Mapping[str, Any]) -> ServerConfig:
    """Build the configuration from layers; the first value of a setting counts, and None counts as unset."""
    chosen: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            if value is not None:
                chosen.setdefault(name, value)
    return ServerConfig(**chosen)


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read the settings from ``FASTQ_<NAME>`` variables; empty ones count as unset."""
    found = {}
    for name in SETTINGS:
        variable = f"FASTQ_{name.upper()}"
        if text := environment.get(variable):
            try:
                found[name] = parse_setting(name, text)
            except ValueError as error:
                raise ValueError(f"{variable}: {error}") from None
    return found


def read_table(path: Path) -> dict[str, Any]:
    """Return the top table of a TOML file; ``ValueError`` if it cannot be read."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None


def from_file(path: Path) -> dict[str, Any]:
    """Read a TOML file: each key is a setting, ``queues`` is a table, and texts are parsed like flags."""
    settings = {}
    for key, value in read_table(path).items():
        name = key.replace("-", "_")
        if name not in SETTINGS and name not in EXTRA_KEYS:
            raise ValueError(f"{path}: unknown setting {key!r}; settings are {', '.join((*EXTRA_KEYS, *SETTINGS))}")
        settings[name] = _from_toml(name, value) if name in SETTINGS else value
    return settings


def _from_toml(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return parse_setting(name, value)
    if setting_kind(SETTINGS[name]) == "by_queue" and isinstance(value, Mapping):
        return {queue: parse_setting(name, each) if isinstance(each, str) else each for queue, each in value.items()}
    return value


def _count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 512M or 2G")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _flag(text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ValueError(f"{text!r} is neither true nor false")
    return _FLAGS[text.lower()]


def _queues(text: str) -> dict[str, int]:
    queues: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, weight = part.rpartition("=")
        if not equals:
            name, weight = part, "1"
            before, colon, after = part.rpartition(":")
            if colon and after.isdigit():
                raise ValueError(f"write {before}={after} for queue {before!r} with weight {after}, not {part!r}")
        if name in queues:
            raise ValueError(f"queue {name!r} is named twice")
        try:
            queues[name] = int(weight)
        except ValueError:
            raise ValueError(f"the weight of queue {name!r} is not a whole number: {weight!r}") from None
    if not queues:
        raise ValueError(f"{text!r} names no queue; write for example critical=6,default=3,low=1")
    return queues


def _by_queue(each: str, text: str) -> Any:
    """Parse ``value``, or ``queue=value,queue=value``; ``*`` stands for all other queues."""
    if "=" not in text:
        return parse_kind(each, text)
    values: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        queue, equals, value = part.rpartition("=")
        if not equals or not queue:
            raise ValueError(f"{part!r} is not QUEUE=VALUE; write for example critical=100000,*=10000")
        if queue in values:
            raise ValueError(f"queue {queue!r} is named twice")
        values[queue] = parse_kind(each, value)
    return values


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "count": _count,
    "seconds": read_duration,
    "bytes": _bytes,
    "flag": _flag,
    "queues": _queues,
    "devices": str,
    "hook": str,
    "choice": str,
    "path": str,
    "file": str,
    "address": str,
}
