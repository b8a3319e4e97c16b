"""Plant each mistake of the table in a copy of the tree, and see that a test finds it: ``python -m tests.mutants``.

The copy is in ``build/mutants``. Of compiled code, only the changed extension is built. At the end, the tests that
failed are run without any mistake: one that fails there, too, has found nothing.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from tests.mutants.table import ROOT, Mutant, extension_of, read_mutants

COPIES: Final = ROOT / "build" / "mutants"
LIMIT_S: Final = 300
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", re.MULTILINE)
BUILD: Final = """\
import sys
from pathlib import Path
from Cython.Build import cythonize
from setuptools import Distribution
from setup import DIRECTIVES, extension
made = cythonize([extension(Path(sys.argv[1]))], compiler_directives=DIRECTIVES, build_dir="build/cython", quiet=True)
build = Distribution({"ext_modules": made}).get_command_obj("build_ext")
build.inplace = True
build.ensure_finalized()
build.run()
"""


class Verdict(NamedTuple):
    """How a mutant ended: ``killer`` is the test that failed, None if none did."""

    mutant: Mutant
    killer: str | None
    took_s: float


def copy_tree(to: Path) -> None:
    """Copy what git knows or would take, and the extensions."""
    shutil.rmtree(to, ignore_errors=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    names += [path.relative_to(ROOT).as_posix() for path in (ROOT / "fastq").rglob("*.so")]
    for name in names:
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def run(command: list[str], tree: Path, **variables: str) -> tuple[int | None, str]:
    """Run a command in a copy; returns its exit code, None if it took too long, and its output."""
    env = {**os.environ, "PYTHONPATH": str(tree), **variables}
    with subprocess.Popen(
        command, cwd=tree, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return None, said
    return process.returncode, said


def compile_extension(source: str, tree: Path) -> None:
    """Build one extension, without optimisation."""
    code, said = run([sys.executable, "-c", BUILD, source], tree, FASTQ_OPTIMIZATION="-O0")
    if code:
        raise RuntimeError(f"{source} cannot be compiled:\n{said}")


def pytest(tests: list[str], tree: Path, *, whole: bool, stops: bool = True) -> tuple[int | None, str]:
    """Run tests in a copy; with ``stops`` the first that fails is the last."""
    which = [] if whole else ["-p", "tests.quick"]
    first = ["-x"] if stops else []
    return run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *first, *which, *tests], tree)


def plant(mutant: Mutant, tree: Path) -> Verdict:
    """Make the mistake in a copy, run its tests, and take it back."""
    began_s = time.monotonic()
    file = tree / mutant.file
    sound = file.read_text("utf-8")
    source = extension_of(mutant.file)
    file.write_text(sound.replace(mutant.find, mutant.put), "utf-8")
    try:
        if source is not None:
            compile_extension(source, tree)
        code, said = pytest(mutant.tests, tree, whole=mutant.whole)
    finally:
        file.write_text(sound, "utf-8")
        if source is not None:
            for built in (ROOT / source).parent.glob(f"{Path(source).stem}.*.so"):
                shutil.copy2(built, tree / built.relative_to(ROOT))
    found = FAILED.search(said)
    if code and not found:
        raise RuntimeError(f"{mutant.name}: pytest could not run:\n{said}")
    killer = "took too long" if code is None else found[1] if code and found else None
    return Verdict(mutant, killer, time.monotonic() - began_s)


def run_all(mutants: list[Mutant], jobs: int) -> list[Verdict]:
    """Plant all mutants, each copy one at a time, and tell of each as it ends."""
    free: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        copy_tree(COPIES / str(number))
        free.put(COPIES / str(number))

    def turn(mutant: Mutant) -> Verdict:
        tree = free.get()
        try:
            verdict = plant(mutant, tree)
        finally:
            free.put(tree)
        sys.stdout.write(f"{mutant.name}: {verdict.killer or 'SURVIVED'} ({verdict.took_s:.0f} s)\n")
        sys.stdout.flush()
        return verdict

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(turn, mutants))


def false_killers(verdicts: list[Verdict]) -> set[str]:
    """Return the tests that fail without any mistake, too."""
    tests = sorted({verdict.killer for verdict in verdicts if verdict.killer and "::" in verdict.killer})
    if not tests:
        return set()
    code, said = pytest(tests, COPIES / "0", whole=True, stops=False)
    if code not in (0, 1):
        raise RuntimeError(f"the tests that failed cannot be run without a mistake:\n{said}")
    return set(FAILED.findall(said))


def main() -> int:
    """Run the table, or the mutants named; returns 1 if one survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", action="append", help="part of the name of a mutant; may be given again")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time, each in a copy of its own")
    asked = parser.parse_args()
    mutants = [each for each in read_mutants() if not asked.only or any(part in each.name for part in asked.only)]
    verdicts = run_all(mutants, asked.jobs)
    false = false_killers(verdicts)
    survived = [verdict for verdict in verdicts if verdict.killer is None or verdict.killer in false]
    sys.stdout.write("\n| mutant | file | killed by | s |\n|---|---|---|---|\n")
    for mutant, killer, took_s in verdicts:
        how = "SURVIVED" if killer is None else f"{killer}, which fails without it, too" if killer in false else killer
        where = " (make test-all)" if mutant.whole else ""
        sys.stdout.write(f"| {mutant.name} | {mutant.file} | {how}{where} | {took_s:.0f} |\n")
    sys.stdout.write(f"\n{len(verdicts) - len(survived)} of {len(verdicts)} were killed\n")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
