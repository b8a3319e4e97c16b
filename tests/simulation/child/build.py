"""Builds the pool's extensions with a point at each access to shared memory, and imports them in place of fastq's."""

import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from tests.simulation.planted import Mistake, plant

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "build/simulation-child"
HOOKS = Path(__file__).parent / "hooks.h"
BATON = Path(__file__).parent / "baton.pyx"
NAME = "tests.simulation.child.baton"
SOURCES = ("shared/ring", "shared/slots", "child/work", "child/steps", "main/child_queue", "main/dispatcher")
"""Below ``fastq/pool``."""
_DIRECTIVES = ("binding=True", "boundscheck=False", "wraparound=False", "initializedcheck=False", "cdivision=True")


def _translate(source: Path, root: Path, to: Path) -> None:
    words = [sys.executable, "-m", "cython", "-3", *(word for one in _DIRECTIVES for word in ("-X", one))]
    subprocess.run([*words, str(source.relative_to(root)), "-o", str(to)], cwd=root, check=True)


def _compile(c: Path, *options: str) -> Path:
    """Compile a file of C unless that was done; return the module."""
    key = hashlib.sha256(c.read_bytes() + HOOKS.read_bytes() + repr(options).encode()).hexdigest()[:16]
    module = BUILT / f"{c.stem}-{key}{EXTENSION_SUFFIXES[0]}"
    if not module.exists():
        made = module.with_suffix(f".{hash(key)}.part")
        include = f"-I{sysconfig.get_path('include')}"
        words = ["cc", "-std=gnu11", "-O0", "-w", "-fPIC", "-shared", include, *options, str(c), "-o", str(made)]
        subprocess.run(words, check=True)
        made.rename(module)
    return module


def _mutated(mistake: Mistake) -> Path:
    """Translate the source that a mistake is in; return the C."""
    key = hashlib.sha256(repr(mistake).encode()).hexdigest()[:16]
    tree = BUILT / f"source-{key}"
    shutil.rmtree(tree, ignore_errors=True)
    for path in (ROOT / "fastq").rglob("*"):
        if path.suffix in {".pyx", ".pxd", ".pxi"} or path.name == "__init__.py":
            copy = tree / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    file = tree / "fastq" / mistake.file
    file.write_text(mistake.apply(file.read_text("utf-8")))
    including = (one for one in file.parent.glob("*.pyx") if f'include "{file.name}"' in one.read_text("utf-8"))
    source = file if file.suffix == ".pyx" else next(including)
    c = BUILT / key / source.with_suffix(".c").name
    c.parent.mkdir(exist_ok=True)
    _translate(source, tree, c)
    shutil.rmtree(tree)
    return c


class _Finder(MetaPathFinder):
    def __init__(self, modules: dict[str, Path]) -> None:
        self._modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._modules:
            return None
        file = str(self._modules[fullname])
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, file))


def install(mistake: Mistake | None = None) -> None:
    """Build what is to be built, and let this process import it; before it imports fastq's pool."""
    BUILT.mkdir(parents=True, exist_ok=True)
    sources = {name: ROOT / f"build/cython/fastq/pool/{name}.c" for name in SOURCES}
    if mistake is not None and not mistake.file.endswith(".py"):
        c = _mutated(mistake)
        (name,) = [name for name in SOURCES if Path(name).stem == c.stem]
        sources[name] = c
    elif mistake is not None:
        plant(mistake)
    baton = BUILT / "baton.c"
    if not baton.exists() or baton.stat().st_mtime < BATON.stat().st_mtime:
        _translate(BATON, ROOT, baton)
    with ThreadPoolExecutor(2) as pool:
        modules = list(pool.map(lambda c: _compile(c, "-include", str(HOOKS)), sources.values()))
    names = [f"fastq.pool.{name.replace('/', '.')}" for name in sources]
    sys.meta_path.insert(0, _Finder(dict(zip(names, modules, strict=True)) | {NAME: _compile(baton)}))
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | os.RTLD_GLOBAL)  # the others call it by the names of C
    importlib.import_module(NAME)
    sys.setdlopenflags(flags)
