"""The contenders' environments under build/compare: virtual ones with pinned packages, and the Go program.

Made when they are first needed; one that cannot be made is reported, and its contenders are left out.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare.contender import Contender
from fastq import __version__

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "compare"
GO_SOURCE = HERE / "goasynq"
LIMIT_S = 600
_NEEDS = re.compile(r"# Python (\d+)\.(\d+)\n")


class UnavailableError(RuntimeError):
    """Raised when an environment cannot be had; the text says why."""


def ensure(environment: str) -> Path:
    """Return the environment's program, made first if it is not there or its pins have changed."""
    if environment == "own":
        return Path(sys.executable)
    return _go() if environment == "go" else _python(environment)


def programs_of(wanted: Sequence[Contender]) -> dict[Contender, Path]:
    """Make what the contenders need, and return their programs; those that cannot be made are named and left out."""
    programs = {}
    for contender in wanted:
        try:
            programs[contender] = ensure(contender.environment)
        except UnavailableError as error:
            print(f"{contender.title} is left out: {error}", file=sys.stderr)
    return programs


def pinned(environment: str) -> str:
    """Return the requirements of an environment."""
    return (HERE / "requirements" / f"{environment}.txt").read_text()


def version(contender: Contender) -> str:
    """Return the version of the contender's library; call it when its environment is there."""
    if contender.environment == "own":
        return __version__
    if contender.environment == "go":
        words = (GO_SOURCE / "go.mod").read_text().split()
        return words[words.index(contender.package) + 1].removeprefix("v")
    code = f"import importlib.metadata as found; print(found.version({contender.package!r}))"
    done = subprocess.run([ensure(contender.environment), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "?"


def _python(environment: str) -> Path:
    home, pins = BUILD / environment, pinned(environment)
    program, stamp = home / "bin" / "python", home / "pins"
    if not stamp.exists() or stamp.read_text() != pins:
        print(f"Making {home.relative_to(BUILD.parents[1])}", file=sys.stderr)
        shutil.rmtree(home, ignore_errors=True)
        _run([_interpreter(pins), "-m", "venv", home], HERE)
        install = ["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--requirement"]
        _run([program, *install, HERE / "requirements" / f"{environment}.txt"], HERE)
        stamp.write_text(pins)
    return program


def _interpreter(pins: str) -> str:
    """Return the Python that requirements name in their first line, as in ``# Python 3.12``, or this one."""
    needs = _NEEDS.match(pins)
    if needs is None or sys.version_info >= tuple(map(int, needs.groups())):
        return sys.executable
    name = "python{}.{}".format(*needs.groups())
    found = shutil.which(name)
    if found is None:
        raise UnavailableError(f"{name} is not here")
    return found


def _go() -> Path:
    """Build the Go program; ``go`` itself knows when there is nothing to do."""
    if shutil.which("go") is None:
        raise UnavailableError("the Go toolchain is not here (no `go` on PATH)")
    binary = BUILD / "goasynq"
    _run(["go", "build", "-buildvcs=false", "-trimpath", "-o", binary, "."], GO_SOURCE)
    return binary


def _run(command: list[str | Path], directory: Path) -> None:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{command[0]} did not end within {LIMIT_S} s") from None
    if done.returncode:
        raise UnavailableError((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])
