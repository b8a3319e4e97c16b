"""Builds the Go programs of the interop tests, each once for all who ask at the same time."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import pytest

HERE = Path(__file__).parent
BIN = HERE / "bin"
BUILD_LIMIT_S = 3600
FASTER: Final = ("-gcflags=all=-l", "-ldflags=-s")
"""No inlining and no symbols: with nothing in Go's cache, all programs compile in two thirds of the time."""


def unavailable(reason: str) -> NoReturn:
    """Skip the test; fail it where FASTQ_REQUIRE_INTEROP=1 says that the interop tests must run."""
    if os.environ.get("FASTQ_REQUIRE_INTEROP") == "1":
        pytest.fail(f"FASTQ_REQUIRE_INTEROP=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def build_peer(flags: Sequence[str] = FASTER) -> Path:
    """Return the peer's binary, built from the present sources."""
    return build("peer", flags=flags)


def build(name: str, modules: str = "go.mod", package: str = ".", flags: Sequence[str] = FASTER) -> Path:
    """Return the binary of the program in the directory ``name``; ``go`` itself knows when there is nothing to do.

    ``modules`` is the file there that says with which versions of its modules it is built; ``package`` is the program,
    if it is one of those modules'. What is measured has no ``flags``: a build as users have it.
    """
    go = shutil.which("go")
    if go is None:
        unavailable("the Go toolchain is not here (no `go` on PATH)")
    kind = ("" if modules == "go.mod" else f"-{Path(modules).stem}") + ("" if flags else "-measured")
    source, binary = HERE / name, BIN / f"{name}{kind}"
    BIN.mkdir(exist_ok=True)
    with (BIN / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        had = run_go(source, "mod", "download", f"-modfile={modules}")
        if had.returncode:
            unavailable(f"the Go modules of {name} cannot be had: {had.stderr.strip()}")
        built = run_go(source, "build", f"-modfile={modules}", "-o", str(binary), package, flags=flags)
    if built.returncode:
        pytest.fail(f"the Go program {name} does not build:\n{built.stderr}", pytrace=False)
    return binary


def run_go(source: Path, *args: str, flags: Sequence[str] = FASTER) -> subprocess.CompletedProcess[str]:
    """Run the command; all have the same flags, so that what one has compiled serves the next, and need no C."""
    env = {**os.environ, "GOFLAGS": " ".join((os.environ.get("GOFLAGS", ""), "-buildvcs=false", "-trimpath", *flags))}
    if flags:
        env["CGO_ENABLED"] = "0"
    return subprocess.run(["go", *args], cwd=source, env=env, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
