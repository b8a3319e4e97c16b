"""Builds the sdist, the wheel out of it, and installs that: what a user gets is what is in the tree, and it works.

The extensions of the wheel are those of the tree, but for one: to compile all would take longer than all the rest.
``make release-check`` and the wheels of CI are compiled from nothing.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMOKE = ROOT / "tests" / "wheel" / "smoke.py"
SHIPPED = {".py", ".pyi", ".lua", ".proto", ".typed", ".jinja", ".html", ".css", ".js", ".svg", ".yml", ".json"}
SOURCES = SHIPPED | {".pyx", ".pxd", ".pxi", ".h"}
BUILD_LIMIT_S = 3600
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
COMPILED_ANEW = "_ids"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Distributions:
    sdist: Path
    wheel: Path
    output: str


def suffixed(directory: str, suffixes: set[str]) -> set[str]:
    """Return the files of the tree under ``directory`` that end so, relative to the tree."""
    files = (path for path in (ROOT / directory).rglob("*") if path.is_file())
    kept = (path for path in files if path.suffix in suffixes and "__pycache__" not in path.parts)
    return {str(path.relative_to(ROOT)) for path in kept}


def build(kind: str, tree: Path, into: Path) -> str:
    """Build an sdist or a wheel; returns what was printed."""
    # What it needs is here: to ask for that would list the tree's files once more.
    here = ["--no-isolation", "--skip-dependency-check"]
    command = [sys.executable, "-m", "build", kind, *here, "--outdir", str(into), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def bring_compiled(tree: Path) -> None:
    """Put what is compiled here where a build of another tree looks first; one extension is left to be compiled."""
    places = {ROOT / "build" / "cython": tree / "build" / "cython"}
    places[ROOT] = tree / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for home, place in places.items():  # C first: a module is newer than what it is made of
        for source in (ROOT / "fastq").rglob("*.pyx"):
            file = source.relative_to(ROOT).with_suffix(SUFFIX if home == ROOT else ".c")
            if source.stem != COMPILED_ANEW and (home / file).exists():
                (place / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(home / file, place / file)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    directory = tmp_path_factory.mktemp("dist")
    output = build("--sdist", ROOT, directory)
    (sdist,) = directory.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    tree = directory / sdist.name.removesuffix(".tar.gz")
    bring_compiled(tree)
    output += build("--wheel", tree, directory)
    (wheel,) = directory.glob("*.whl")
    return Distributions(sdist, wheel, output)


@pytest.fixture(scope="module")
def wheel_names(built: Distributions) -> set[str]:
    with zipfile.ZipFile(built.wheel) as archive:
        return set(archive.namelist())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux' linker is told to strip")
def test_extensions_are_stripped(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        extensions = [archive.read(name) for name in archive.namelist() if name.endswith(".so")]
    assert extensions
    # The names of an ELF file's sections stand in it as text.
    assert [data for data in extensions if b"\0.symtab\0" in data or b"\0.debug_" in data] == []


def test_wheel_holds_the_package_and_nothing_else(wheel_names: set[str]) -> None:
    compiled = {str(Path(source).with_suffix(SUFFIX)) for source in suffixed("fastq", {".pyx"})}
    package = {name for name in wheel_names if ".dist-info/" not in name}
    assert compiled
    assert package == suffixed("fastq", SHIPPED) | compiled | {"fastq_worker.py"}


def test_wheel_is_for_one_python_and_carries_the_licence(built: Distributions, wheel_names: set[str]) -> None:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{tag}-{tag}-" in built.wheel.name
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel_names)


def test_sdist_holds_all_that_building_and_testing_need(built: Distributions) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = suffixed("fastq", SOURCES) | suffixed("tests", {".py", ".json", ".toml", ".go", ".mod", ".sum"})
    wanted |= suffixed("benchmarks", {".py"}) | {"pyproject.toml", "setup.py", "Makefile", "LICENSE", ".ci/run"}
    assert wanted - names == set()
    made = {name for name in names if name.endswith((".c", ".so", ".pyc")) or "/bin/" in name}
    assert made == {"tests/simulation/clock.c"}, "that one is written by hand"


def test_build_uses_nothing_that_is_deprecated(built: Distributions) -> None:
    assert "deprecat" not in built.output.lower()


def test_installed_wheel_works_away_from_the_tree(built: Distributions, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home)
    python = home / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = ["install", "--quiet", "--no-index", "--no-deps", str(built.wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True, env=environment)
    # The dependencies are those of this environment; fastq itself is found before them, in the new one.
    (site_packages,) = home.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = subprocess.run(
        [str(python), "-W", "error", str(SMOKE)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "golden messages" in done.stdout
