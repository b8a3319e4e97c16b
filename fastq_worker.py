"""Starts the commands ``fastq`` and ``fastq-worker``, if the package ``fastq`` is the one of this distribution.

The PyPI project ``fastq``, which reads DNA data, has a package of the same name. If both are installed, the later one
has replaced files of the other, and uninstalling one removes files of both. Then the package may not even be
importable, so this module is not part of it.
"""

import sys
from importlib import import_module
from importlib.util import find_spec

__all__ = ["run_fastq", "run_worker"]


def run_fastq() -> None:
    """Run the command ``fastq``."""
    _check_package()
    import_module("fastq.cli.main").main()


def run_worker() -> None:
    """Run the command ``fastq-worker``."""
    _check_package()
    import_module("fastq.cli.worker").main()


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
