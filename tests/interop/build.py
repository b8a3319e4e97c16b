"""Builds the Go peer, once for all who ask at the same time."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["build_peer", "unavailable"]

HERE = Path(__file__).parent
SOURCE = HERE / "peer"
BINARY = HERE / "bin" / "peer"
BUILD_LIMIT_S = 3600


def unavailable(reason: str) -> NoReturn:
    """Skip the test; fail it where FASTQ_REQUIRE_INTEROP=1 says that the interop tests must run."""
    if os.environ.get("FASTQ_REQUIRE_INTEROP") == "1":
        pytest.fail(f"FASTQ_REQUIRE_INTEROP=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def build_peer() -> Path:
    """Return the peer's binary, built from the present sources; ``go`` itself knows when there is nothing to do."""
    go = shutil.which("go")
    if go is None:
        unavailable("the Go toolchain is not here (no `go` on PATH)")
    BINARY.parent.mkdir(exist_ok=True)
    with (BINARY.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        modules = run_go("mod", "download")
        if modules.returncode:
            unavailable(f"the peer's Go modules cannot be had: {modules.stderr.strip()}")
        built = run_go("build", "-buildvcs=false", "-trimpath", "-o", str(BINARY), ".")
    if built.returncode:
        pytest.fail(f"the Go peer does not build:\n{built.stderr}", pytrace=False)
    return BINARY


def run_go(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["go", *args], cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
