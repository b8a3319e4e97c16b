"""Run the tests of Django's tasks on the versions of Django that need a newer Python than the build's.

``python -m tests.contrib.django.versions [arguments of pytest]``. The environments are kept under ``build/django``.
Where there is no such Python, or no package index, a line says what is not tested.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
HOME: Final = ROOT / "build" / "django"
VERSIONS: Final = ("django~=6.0.0", "django>=6.1,<7")
NEEDS: Final = (3, 12)
"""The Python of Django 6."""
TESTS: Final = ("tests/contrib/django", "tests/docs/test_django.py", "--ignore=tests/contrib/django/test_shop.py")
# What fastq and its tests of Django import.
PACKAGES: Final = (
    *("redis[hiredis]>=8.1,<9", "protobuf>=6.30", "orjson>=3.10", "croniter>=6.0", "click>=8.1", "msgspec>=0.20"),
    *("setuptools>=77", "Cython>=3.1,<4", "pytest>=8.3", "pytest-benchmark", "hypothesis>=6.120", "cryptography>=44"),
)


def fitting_python() -> str | None:
    """Return a Python that runs Django 6: that of this process, one of PATH, or one of pyenv."""
    names = (f"python3.{minor}" for minor in range(14, NEEDS[1] - 1, -1))
    on_path = (found for found in map(shutil.which, names) if found is not None)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    of_pyenv = map(str, sorted(pyenv.glob("versions/3.*/bin/python3"), reverse=True))
    return next((each for each in (sys.executable, *on_path, *of_pyenv) if _fits(each)), None)


def _fits(python: str) -> bool:
    said = subprocess.run(
        [python, "-c", f"import sys, ensurepip; sys.exit(sys.version_info < {NEEDS})"], capture_output=True
    )
    return said.returncode == 0


def environment(python: str) -> Path:
    """Return the Python of an environment with what the tests import, and with the extensions compiled for it."""
    mine = HOME / "python" / "bin" / "python"
    if not (HOME / "installed").exists():
        subprocess.run([python, "-m", "venv", "--clear", HOME / "python"], check=True)
        _pip(mine, *PACKAGES)
        (HOME / "installed").touch()
    build = ["--build-lib", str(HOME / "lib"), "--build-temp", str(HOME / "temp")]
    command = [str(mine), "setup.py", "--quiet", "build_ext", "--inplace", *build]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "FASTQ_OPTIMIZATION": "-O0"}, check=True)
    return mine


def django_at(python: Path, version: str) -> Path:
    """Return a directory with this version of Django."""
    directory = HOME / version
    if not directory.exists():
        _pip(python, "--target", f"{directory}.part", version)
        Path(f"{directory}.part").rename(directory)
    return directory


def _pip(python: Path, *words: str) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    subprocess.run([str(python), "-m", "pip", "install", *options, *words], check=True)


def untested(why: str) -> int:
    """Say that nothing was tested, and why; returns the exit code."""
    sys.stdout.write(f"NOT TESTED: {' and '.join(VERSIONS)}: {why}\n")
    return 0


def main(arguments: list[str]) -> int:
    """Run the tests on each version, and print a line for each; returns the exit code."""
    found = fitting_python()
    if found is None:
        return untested("they need Python 3.12 or later, and there is none on PATH or in pyenv")
    try:
        python = environment(found)
        djangos = [django_at(python, version) for version in VERSIONS]
    except subprocess.CalledProcessError as error:
        if "pip" not in error.cmd:
            raise
        return untested("pip could not install what they need")
    rows, codes = [], []
    for version, directory in zip(VERSIONS, djangos, strict=True):
        began_s = time.monotonic()
        env = {**os.environ, "PYTHONPATH": str(directory)}
        codes.append(subprocess.run([python, "-m", "pytest", *(arguments or TESTS)], cwd=ROOT, env=env).returncode)
        end = "passed" if codes[-1] == 0 else "FAILED"
        rows.append(f"{version:<16} with {found}: {end} ({time.monotonic() - began_s:.0f} s)")
    sys.stdout.write("\n" + "".join(f"{row}\n" for row in rows))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
