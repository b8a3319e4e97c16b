"""Build the Cython extensions: every ``fastq/**/*.pyx``, with one set of directives.

``FASTQ_DEBUG=1`` builds without optimisation, with line tracing and bounds checks. ``FASTQ_OPTIMIZATION`` is the
compiler's level, -O3 by default. ``FASTQ_SANITIZE=address`` adds a sanitizer. ``FASTQ_SKIP_EXTENSIONS=1`` builds none:
the Makefile installs the package once and compiles by itself, so that one changed source costs one compilation. The
extensions use the full CPython ABI, one wheel a Python version: the limited API costs the codec more than a third of
its speed, which is what it exists for.

With ``SOURCE_DATE_EPOCH`` set, the same tree makes the same sdist and the same wheel, byte for byte. The links of the
metadata, and those of README.md on PyPI, begin with the address in pyproject.toml.
"""

import gzip
import os
import re
import runpy
import sys
import tarfile
import time
import tomllib
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.sdist import sdist

DEBUG = os.environ.get("FASTQ_DEBUG") == "1"
OPTIMIZATION = os.environ.get("FASTQ_OPTIMIZATION", "-O3")
SANITIZE = os.environ.get("FASTQ_SANITIZE", "")
SKIP = os.environ.get("FASTQ_SKIP_EXTENSIONS") == "1"

DIRECTIVES = {
    "language_level": 3,
    "binding": True,
    "embedsignature": True,
    # Without the next two, stubtest finds generated names that no stub has.
    "auto_pickle": False,
    "autotestdict": False,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "linetrace": DEBUG,
}


def compile_args() -> list[str]:
    """Return the C compiler's flags for this build."""
    # CPython's own flags ask for -Wsign-compare, at which Cython's C trips: an enum beside an int, a loop's bound.
    # Looking for misleading indentation takes GCC a quarter of its time at -O0, as these files are long.
    warnings = ["-Wno-sign-compare", "-Wno-misleading-indentation"]
    args = ["-std=c11", *warnings, *(["-O0", "-g"] if DEBUG else [OPTIMIZATION, "-g0"])]
    return [*args, f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-g"] if SANITIZE else args


def link_args() -> list[str]:
    """Return the linker's flags for this build: a release is stripped, which leaves a third of its size."""
    if SANITIZE:
        return [f"-fsanitize={SANITIZE}"]
    return [] if DEBUG or sys.platform != "linux" else ["-Wl,--strip-all"]


def extension(source: Path) -> Extension:
    """Describe the extension module that one ``.pyx`` file makes."""
    return Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        extra_compile_args=compile_args(),
        extra_link_args=link_args(),
        define_macros=[("CYTHON_TRACE", "1")] if DEBUG else [],
    )


def extensions() -> list[Extension]:
    """Translate every source to C, each kind of build in a directory of its own: the directives differ."""
    sources = sorted(Path("fastq").rglob("*.pyx"))
    if not sources:
        raise SystemExit("setup.py: no .pyx under fastq/: a package without its extensions must not be built")
    return cythonize(
        [extension(source) for source in sources],
        compiler_directives=DIRECTIVES,
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        quiet=True,
        nthreads=os.cpu_count(),
    )


def repository() -> str:
    """Return the address of the repository, or an empty string before it has one."""
    return str(tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["tool"]["fastq-worker"]["repository"])


def urls(repository: str, tag: str) -> dict[str, str]:
    """Return the links of the metadata: none without an address."""
    if not repository:
        return {}
    owner, name = repository.rsplit("/", 2)[-2:]
    return {
        "Source": repository,
        "Documentation": f"https://{owner}.github.io/{name}/{tag.removeprefix('v')}/",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Security": f"{repository}/blob/{tag}/SECURITY.md",
    }


def page(text: str, repository: str, tag: str) -> str:
    """Return a page with links and pictures that work elsewhere: those of the tree at this tag."""
    if not repository:
        return text
    link = re.compile(r"(!?)(\[[^]]*\])\((?!https?:|#)([^)\s]+)\)")
    return link.sub(lambda it: f"{it[1]}{it[2]}({repository}/{'raw' if it[1] else 'blob'}/{tag}/{it[3]})", text)


class Sdist(sdist):
    """An archive of the same bytes whoever makes it: no times, owners and order of the machine are in it."""

    def make_archive(self, base_name: str, *_: object, base_dir: str, **__: object) -> str:
        """Pack a directory, and return the path of the archive."""
        date = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
            entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime = 0, 0, "", "", date
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            return entry

        with (
            open(f"{base_name}.tar.gz", "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=date) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for path in [Path(base_dir), *sorted(Path(base_dir).rglob("*"))]:
                archive.add(path, recursive=False, filter=plain)
        return f"{base_name}.tar.gz"


# Where processes are spawned, those of cythonize import this file.
if __name__ == "__main__":
    tag = f"v{runpy.run_path('fastq/_version.py')['__version__']}"
    setup(
        cmdclass={"sdist": Sdist},
        project_urls=urls(repository(), tag),
        long_description=page(Path("README.md").read_text("utf-8"), repository(), tag),
        long_description_content_type="text/markdown",
        ext_modules=[] if SKIP else extensions(),
        options={"build_ext": {"parallel": os.cpu_count()}},
    )
