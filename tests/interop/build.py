"""Builds the Go programs of the interop tests, each once for all who ask at the same time."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).parent
BIN = HERE / "bin"
BUILD_LIMIT_S = 3600


def unavailable(reason: str) -> NoReturn:
    """Skip the test; fail it where FASTQ_REQUIRE_INTEROP=1 says that the interop tests must run."""
    if os.environ.get("FASTQ_REQUIRE_INTEROP") == "1":
        pytest.fail(f"FASTQ_REQUIRE_INTEROP=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def build_peer() -> Path:
    """Return the peer's binary, built from the present sources."""
    return build("peer")


def build(name: str, modules: str = "go.mod", package: str = ".") -> Path:
    """Return the binary of the program in the directory ``name``; ``go`` itself knows when there is nothing to do.

    ``modules`` is the file there that says with which versions of its modules it is built; ``package`` is the program,
    if it is one of those modules'.
    """
    go = shutil.which("go")
    if go is None:
        unavailable("the Go toolchain is not here (no `go` on PATH)")
    source, binary = HERE / name, BIN / (name if modules == "go.mod" else f"{name}-{Path(modules).stem}")
    BIN.mkdir(exist_ok=True)
    with (BIN / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        had = run_go(source, "mod", "download", f"-modfile={modules}")
        if had.returncode:
            unavailable(f"the Go modules of {name} cannot be had: {had.stderr.strip()}")
        built = run_go(
            source, "build", f"-modfile={modules}", "-buildvcs=false", "-trimpath", "-o", str(binary), package
        )
    if built.returncode:
        pytest.fail(f"the Go program {name} does not build:\n{built.stderr}", pytrace=False)
    return binary


def run_go(source: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["go", *args], cwd=source, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
