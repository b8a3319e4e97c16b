"""A fork in place of a new process: the program cannot tell the difference."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.starting import Forked, can_be_forked, start

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open")

TELLS = """
import json, os, signal, sys, threading, time

from fastq.cli.worker import main

json.dump(
    {
        "argv": sys.argv,
        "directory": os.getcwd(),
        "environment": {name: os.environ[name] for name in os.environ if name != "_"},
        "path": sys.path,
        "open": [fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{fd}")],
        "main": [__spec__.name, "teller" in sys.modules],
        "streams": [[each.encoding, each.errors, each.line_buffering] for each in (sys.stdin, sys.stdout, sys.stderr)],
        "input": sys.stdin.read(),
        "signals": [str(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
        "threads": threading.active_count(),
        "zone": time.tzname,
    },
    sys.stdout,
)
sys.stderr.write("said")
sys.exit(3)
"""
MODULES = ["fastq.cli.worker"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tmp_path), "FASTQ_QUEUES": "a", "TZ": "Asia/Tokyo"}


def forked(directory: Path, environment: dict[str, str], *words: str) -> tuple[Forked, Path, Path]:
    out, err = directory / "out", directory / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        return start(words, directory, environment, (stdout.fileno(), stderr.fileno()), MODULES), out, err


def test_a_program_sees_what_a_new_process_would_show_it(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "teller.py").write_text(TELLS)
    command = [sys.executable, "-m", "teller", "a", "b c"]
    how: dict[str, Any] = {"cwd": tmp_path, "env": environment, "stdin": subprocess.DEVNULL, "capture_output": True}
    new = subprocess.run(command, **how)
    process, out, err = forked(tmp_path, environment, "teller", "a", "b c")
    assert (process.wait(), err.read_bytes()) == (new.returncode, new.stderr) == (3, b"said")
    assert json.loads(out.read_bytes()) == json.loads(new.stdout)


def test_a_signal_ends_it_as_it_ends_a_process(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "sleeper.py").write_text("import signal\nprint(flush=True)\nsignal.pause()\n")
    process, _, _ = forked(tmp_path, environment, "sleeper")
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    assert process.wait() == process.poll() == -signal.SIGKILL


def test_what_only_a_start_reads_is_left_to_one(tmp_path: Path) -> None:
    assert can_be_forked(tmp_path)
    (tmp_path / "sitecustomize.py").touch()
    assert not can_be_forked(tmp_path)
