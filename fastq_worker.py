"""Starts the commands ``fastq`` and ``fastq-worker``, if the package ``fastq`` is the one of this distribution.

The PyPI project ``fastq``, which reads DNA data, has a package of the same name. If both are installed, the later one
has replaced files of the other, and uninstalling one removes files of both. Then the package may not even be
importable, so this module is not part of it.
"""

import os.path
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["run_fastq", "run_worker"]

EXIT_INTERRUPTED = 130


def run_fastq() -> None:
    """Run the command ``fastq``."""
    _check_package()
    _load("fastq.cli.main").main()


def run_worker() -> None:
    """Run the command ``fastq-worker``."""
    _check_package()
    if os.path.exists("fastq.py"):  # Python finds it first in the processes that import the app
        sys.exit("fastq-worker: the file fastq.py in this directory hides the package fastq from the app; rename it")
    _load("fastq.cli.worker").main()


def _load(module: str) -> Any:
    """Import a module; Ctrl-C meanwhile ends the process without a traceback."""
    try:
        return import_module(module)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _check_package() -> None:
    """End the process with the remedy if the package is of another project, or has no ``__init__``."""
    try:
        found: object = import_module("fastq")
    except ImportError:
        found = None
    if "ServeMux" not in getattr(found, "__all__", ()):
        spec = find_spec("fastq")
        places = ", ".join(spec.submodule_search_locations or ()) if spec else ""
        sys.exit(
            f"fastq-worker: the package 'fastq' in {places or 'sys.path'} is not, or not only, the one of "
            "fastq-worker. The PyPI project 'fastq', which reads DNA data, has a package of the same name. Give each "
            "an environment of its own, here with: "
            "pip uninstall --yes fastq fastq-worker && pip install fastq-worker"
        )
