"""What a load without limits, lanes or keys asks of Redis, in two trees, by MONITOR.

``python -m benchmarks.monitored --before DIR``. Numbers, ids and marks are masked; a script is known by its name, and
compared without its comments. A line for each script or command has the calls before and now, and says whether it is
another script; below it is what Redis was asked for within it in one tree only. Nearly all tasks wait for the one
before, so the calls can be compared.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.bench_worker import ROOT
from benchmarks.fleet import running
from benchmarks.recovery_lanes import listen
from tests.ports import free_port
from tests.redis_servers import redis_server

_LINE: Final = re.compile(r"\+?[\d.]+ \[\d+ (\S+)\] (.*)")
_TAG: Final = re.compile(r"\{(.*?)\}")
_WORD: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_MASKS: Final = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"[0-9a-f]{16,40}"), "HEX"),
    (re.compile(r"(?<=history:)[\dT-]+"), "TIME"),
    (re.compile(r";\d*[a-zA-Z;\d]+"), "COUNTS"),
    (re.compile(r"-?\d+(\.\d+)?"), "N"),
    (re.compile(r".*\\x.*"), "BYTES"),
]
_SCRIPTS: Final = """
import json
from fastq.broker import scripts
found = getattr(scripts, "SCRIPTS", None) or scripts._SCRIPTS  # before: its older name
print(json.dumps({name: [script.sha, script.text] for name, script in found.items()}))
"""
_COMMENT: Final = re.compile(r"--\[\[[\s\S]*?\]\]|--.*")
_NOT_TOLD: Final = frozenset({"GET", "INFO", "HELLO", "CLIENT", "MONITOR", "ZCARD"})
"""What begins a connection, and what this program asks to wait for servers and ends."""


@dataclass
class Told:
    """What MONITOR told of a load: the calls of each script or command, and what each of them did."""

    calls: Counter[str] = field(default_factory=Counter)
    within: dict[str, set[str]] = field(default_factory=dict)
    commands: int = 0


def without_numbers(word: str) -> str:
    """Return a word with what differs from run to run masked."""
    for mask, name in _MASKS:
        word = mask.sub(name, word)
    return word


def masked(words: list[str]) -> str:
    """Return a command with its arguments masked; several of a kind are one."""
    kept: list[str] = []
    for word in words:
        one = without_numbers(word if len(word) <= 60 else "BYTES")
        if one not in kept[-2:]:
            kept.append(one)
    return " ".join(kept)


def tell(lines: Iterable[str], names: Mapping[str, str]) -> Told:
    """Read what MONITOR wrote; ``names`` has the scripts by SHA and by text."""
    told, current = Told(), ""
    for match in filter(None, map(_LINE.match, lines)):
        words = _WORD.findall(match[2])
        command = words[0].upper()
        if match[1] == "lua":
            told.within[current].add(masked(words))
        elif command in _NOT_TOLD:
            continue
        else:
            script = words[1].encode().decode("unicode_escape") if command.startswith("EVAL") else ""
            keys_of = without_numbers(_TAG.findall(words[3])[0]) if script in names else ""
            current = f"{names[script]} {keys_of}" if script in names else masked(words)
            told.calls[current] += 1
            told.within.setdefault(current, set())
        told.commands += 1
    return told


def code(text: str) -> str:
    """Return a script without its comments."""
    return "\n".join(line.rstrip() for line in _COMMENT.sub("", text).splitlines() if line.strip())


def watch(tree: Path, into: Path) -> tuple[Told, dict[str, str]]:
    """Run the load in a tree; return what MONITOR told, and the code of the scripts."""
    scripts = subprocess.run([sys.executable, "-c", _SCRIPTS], cwd=tree, check=True, capture_output=True).stdout
    found: dict[str, tuple[str, str]] = json.loads(scripts)
    names = {known: name for name, two in found.items() for known in two}
    flags = ["--queues", "default=2,low=1", "--delayed-task-check-interval", "1", "--log-level", "error"]
    flags += ["--log-tracebacks", "never", "--retry-delay", "plain_load:retry_soon"]
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server(free_port()))
        listen(redis, into, stack.enter_context(ExitStack()))
        stack.enter_context(running(redis, *flags, app="plain_load:mux", tree=tree))
        producer = [sys.executable, str(ROOT / "benchmarks" / "plain_load.py"), redis.tcp_url]
        subprocess.run(producer, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, check=True)
    with into.open(errors="replace") as lines:
        return tell(lines, names), {name: code(text) for name, (_, text) in found.items()}


def main() -> None:
    """Run both, and print the differences."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, required=True)
    before = parser.parse_args().before.resolve()
    with tempfile.TemporaryDirectory() as directory:
        (old, old_code), (new, new_code) = (watch(one, Path(directory) / one.name) for one in (before, ROOT))
    print(f"commands before {old.commands}, now {new.commands}, those within scripts included")
    for name in sorted({*old.calls, *new.calls}):
        script = name.split()[0]
        is_other = script in old_code and old_code[script] != new_code.get(script)
        print(f"{old.calls[name]:6} {new.calls[name]:6}  {name}{', ANOTHER SCRIPT' if is_other else ''}")
        if old.calls[name] and new.calls[name]:
            was, now = old.within[name], new.within[name]
            for one in sorted(was ^ now):
                print(f"               {'only before' if one in was else 'only now'}: {one}")


if __name__ == "__main__":
    main()
