"""Reads Redis' settings, clock and slow log; not every Redis user may read these."""

from typing import Any, NamedTuple

from fastq.broker.operation import Operation, scripted
from fastq.broker.scripts import SCRIPTS
from fastq.broker.transport.replies import fields_of
from fastq.wire import keys


def redis_info() -> Operation[dict[str, str]]:
    """Read the fields of INFO by name; in a cluster, from one node."""
    return Operation("INFO", (), (), _facts, idempotent=True)


def node_memory(tag: str) -> Operation[dict[str, str]]:
    """Read the fields of INFO memory from a cluster's node; ``tag`` is the name of a queue on the node."""
    return scripted("node_memory", (keys.pending(tag),), (), _facts, idempotent=True)


def cluster_info() -> Operation[dict[str, str]]:
    """Read the fields of a node's CLUSTER INFO; a ``BrokerError`` if Redis is not a cluster."""
    return Operation("CLUSTER", (), ("INFO",), _facts, idempotent=True)


def _facts(reply: bytes) -> dict[str, str]:
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.partition(":")[::2] for line in lines if ":" in line and not line.startswith("#"))


class SlowCommand(NamedTuple):
    """An entry of Redis' slow log: when it ran (Unix seconds), for how long, and which command.

    If it is a script of fastq, ``name`` is the script's name.
    """

    at_s: int
    took_us: int
    name: str
    is_ours: bool


def read_setting(name: str) -> Operation[str | None]:
    """Read one of Redis' settings; None if Redis does not know it."""
    return Operation("CONFIG", (), ("GET", name), _setting, idempotent=True)


def _setting(reply: Any) -> str | None:
    return next((value.decode(errors="replace") for value in fields_of(reply).values()), None)


def read_time() -> Operation[float]:
    """Read Redis' clock, in Unix seconds."""
    return Operation("TIME", (), (), lambda reply: int(reply[0]) + int(reply[1]) / 1e6, idempotent=True)


def slow_commands(count: int) -> Operation[list[SlowCommand]]:
    """Read the last entries of the slow log, the latest first."""
    return Operation("SLOWLOG", (), ("GET", count), _slow_commands, idempotent=True)


def _slow_commands(reply: list[Any]) -> list[SlowCommand]:
    names = {script.sha: name for name, script in SCRIPTS.items()}
    return [_slow_command(names, entry) for entry in reply]


def _slow_command(names: dict[str, str], entry: list[Any]) -> SlowCommand:
    words = [word.decode(errors="replace") for word in entry[3]]
    command, first = words[0].upper(), words[1] if len(words) > 1 else ""
    is_script = command in ("EVALSHA", "EVAL", "EVALSHA_RO", "EVAL_RO", "FCALL", "FCALL_RO")
    script = names.get(first, f"{first[:8]}…" if command.startswith("EVALSHA") else "")
    is_ours = is_script or any(word.startswith("asynq:") for word in words[1:])
    return SlowCommand(entry[1], entry[2], f"{command} {script}".rstrip() if is_script else command, is_ours)
