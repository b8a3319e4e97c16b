"""Makes what a release publishes, and checks it as far as a machine at home can: ``make release-check``.

The tree is built twice, in two folders, and both builds are to be the same to the byte. PyPI's rendering of the page
and its links are checked, and a wheel for each Python of this machine is made from the sdist, installed and tried away
from the tree. Nothing is published. ``--final`` fails where something is left that only a maintainer can fill in.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Final

from fastq._version import __version__
from tests import pythons
from tests.release.changes import changes, released_on
from tests.release.page import astray, links, rendered

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build" / "release"
DIST: Final = ROOT / "dist"
TAG: Final = f"v{__version__}"
UNSET: Final = "(not set yet"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Return what a command printed; show it and end the program where it failed."""
    date = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    env = {"SOURCE_DATE_EPOCH": date, **os.environ} if date else dict(os.environ)
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nrelease-check: this failed: {' '.join(map(str, command))}")
    return done.stdout


def repository() -> str:
    """Return the address that a maintainer has filled in."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["fastq-worker"]["repository"])


def unfilled() -> Iterator[str]:
    """Yield what is left to a maintainer."""
    if not repository():
        yield "pyproject.toml: no address of the repository"
    if UNSET in (ROOT / "SECURITY.md").read_text("utf-8"):
        yield "SECURITY.md: no address of security reports"
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if not changes(__version__, text):
        yield f"CHANGELOG.md: nothing under [{__version__}]"
    if not released_on(__version__, text):
        yield f"CHANGELOG.md: no date behind [{__version__}]"


def copy_of_tree(to: Path) -> Path:
    """Copy the tree as git knows it: what else lies about is not published."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def build() -> tuple[Path, Path]:
    """Build sdist and wheel twice, compare them, and return them."""
    for directory in (BUILD, DIST):
        shutil.rmtree(directory, ignore_errors=True)
    trees = [copy_of_tree(BUILD / name / "tree") for name in ("once", "again")]
    for tree in trees:
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tree.parent / "dist", ".", cwd=tree)
    shutil.copytree(BUILD / "once" / "dist", DIST)
    for file in DIST.iterdir():
        if file.read_bytes() != (BUILD / "again" / "dist" / file.name).read_bytes():
            raise SystemExit(f"release-check: two builds of {file.name} differ: see build/release/once and again")
        say(f"built twice, the same bytes: {file.name}")
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def metadata_of(wheel: Path) -> Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def check_page(wheel: Path) -> None:
    """Check the metadata and the page as PyPI does, and where the links lead."""
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    metadata = metadata_of(wheel)
    (BUILD / "page.html").write_text(rendered(metadata), "utf-8")
    say("twine check passed; PyPI's page is in build/release/page.html")
    found = links(metadata)
    wrong = list(astray(found, repository(), TAG, ROOT))
    if wrong and repository():
        raise SystemExit("\n".join(["release-check: links of the metadata:", *wrong]))
    say(f"links: {len(found)}, {len(wrong)} of them relative until pyproject.toml has the address")


def try_wheel(version: str, python: str, sdist: Path, wheel: Path) -> Path:
    """Make the wheel for this Python where it is another one, install it, try it; returns Python of the environment."""
    home = BUILD / f"python{version}"
    run(python, "-m", "venv", "--without-pip", home)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--python",
        home / "bin" / "python",
    ]
    tag = f"cp3{version.partition('.')[2]}"
    if f"-{tag}-" not in wheel.name:
        run(*pip, "wheel", "--no-deps", "--wheel-dir", BUILD / "wheels", sdist)
        (wheel,) = (BUILD / "wheels").glob(f"*-{tag}-*.whl")
    run(*pip, "install", wheel)
    run(home / "bin" / "python", ROOT / "tests" / "wheel" / "smoke.py", cwd=BUILD)
    say(f"installed and tried on Python {version} ({python}): {wheel.name}")
    return home / "bin" / "python"


def write_parts_list(python: Path) -> Path:
    """Write the SBOM: what an installation of fastq consists of."""
    path = BUILD / f"fastq_worker-{__version__}.cdx.json"
    cyclonedx = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON")
    run(*cyclonedx, "-o", path, python)
    return path


def main() -> int:
    """Make and check all; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make release-check")
    parser.add_argument("--final", action="store_true", help="fail where something is left to fill in")
    final = parser.parse_args().final
    left = list(unfilled())
    if final and left:
        raise SystemExit("\n".join(["release-check: left to fill in:", *left]))
    sdist, wheel = build()
    check_page(wheel)
    own = pythons.version_of(sys.executable)
    tried = {each: try_wheel(each, python, sdist, wheel) for each, python in pythons.found().items()}
    published = [sdist, wheel, write_parts_list(tried[own])]
    (BUILD / "changes.md").write_text(changes(__version__, (ROOT / "CHANGELOG.md").read_text("utf-8")) + "\n", "utf-8")
    say(f"\n{TAG} would publish, with the wheels of .github/workflows/release.yml:")
    for file in published:
        say(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.stat().st_size:>9}  {file.relative_to(ROOT)}")
    for line in left:
        say(f"left to fill in: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
