"""Build the Cython extensions: every ``fastq/**/*.pyx``, with one set of directives.

``FASTQ_DEBUG=1`` builds without optimisation, with line tracing and bounds checks. ``FASTQ_OPTIMIZATION`` is the
compiler's level, -O3 by default. ``FASTQ_SANITIZE=address`` adds a sanitizer. ``FASTQ_SKIP_EXTENSIONS=1`` builds none:
the Makefile installs the package once and compiles by itself, so that one changed source costs one compilation. The
extensions use the full CPython ABI, one wheel a Python version: the limited API costs the codec more than a third of
its speed, which is what it exists for.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

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
    args = ["-std=c11", "-Wno-sign-compare", *(["-O0", "-g"] if DEBUG else [OPTIMIZATION, "-g0"])]
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


# Where processes are spawned, those of cythonize import this file.
if __name__ == "__main__":
    setup(
        ext_modules=[] if SKIP else extensions(),
        options={"build_ext": {"parallel": os.cpu_count()}},
    )
