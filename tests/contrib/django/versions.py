"""Run the tests of Django's tasks on Django 6, which may need a newer Python than the build's, and those of the Celery
shim on Django 4.2.

``python -m tests.contrib.django.versions``. The environments are kept under ``build/django``. Where there is no such
Python, or no package index, a line says what is not tested.
"""

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
HOME: Final = ROOT / "build" / "django"
OLDEST: Final = "django~=4.2.0"
VERSIONS: Final = ("django~=6.0.0", "django>=6.1,<7")
NEEDS: Final = (3, 12)
"""The Python of Django 6."""
TESTS_OF_OLDEST: Final = ("tests/contrib/celery/test_django.py",)
TESTS: Final = ("tests/contrib/django", "tests/docs/test_django.py", "--ignore=tests/contrib/django/test_shop.py")
# What fastq and its tests of Django import.
PACKAGES: Final = (
    *tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"],
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
        without_pip = ["--without-pip"] if shutil.which("uv") else []
        subprocess.run([python, "-m", "venv", "--clear", *without_pip, HOME / "python"], check=True)
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
    uv = shutil.which("uv")
    install = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
    subprocess.run([*install, "--quiet", "--only-binary=:all:", *words], check=True)


def tested(python: str, version: str, tests: Sequence[str]) -> int:
    """Run tests on a version, and print a line; returns pytest's exit code."""
    try:
        directory = django_at(Path(python), version)
    except subprocess.CalledProcessError:
        return untested(version, "pip could not install it")
    began_s = time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(directory)}
    code = subprocess.run([python, "-m", "pytest", "--quiet", *tests], cwd=ROOT, env=env).returncode
    end = "passed" if code == 0 else "FAILED"
    sys.stdout.write(f"{version} with {python}: {end} ({time.monotonic() - began_s:.0f} s)\n\n")
    return code


def untested(versions: str, why: str) -> int:
    """Say that nothing was tested, and why; returns the exit code."""
    sys.stdout.write(f"NOT TESTED: {versions}: {why}\n")
    return 0


def main() -> int:
    """Run the tests on each version; returns the exit code."""
    code = tested(sys.executable, OLDEST, TESTS_OF_OLDEST) if sys.version_info < NEEDS else 0
    newer = " and ".join(VERSIONS)
    found = fitting_python()
    if found is None:
        return code or untested(newer, "they need Python 3.12 or later, and there is none on PATH or in pyenv")
    try:
        python = environment(found)
    except subprocess.CalledProcessError as error:
        if "pip" not in error.cmd:
            raise
        return code or untested(newer, "pip could not install what they need")
    return max(code, *(tested(str(python), version, TESTS) for version in VERSIONS))


if __name__ == "__main__":
    sys.exit(main())
