"""A clash with the PyPI project ``fastq``, whose package has the same name, is reported with the remedy."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REMEDY = "pip uninstall --yes fastq fastq-worker && pip install fastq-worker"


def run(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code that finds no package but the standard library's and those in ``directory``."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(directory)!r}); {code}"]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    "init",
    ["from miniFasta import fasta_object", "__all__ = ['read', 'write']", None],
    ids=["it cannot be imported", "it can be imported", "it was uninstalled later"],
)
@pytest.mark.parametrize("command", ["run_fastq", "run_worker"])
def test_a_command_says_how_to_mend_a_package_of_the_other_project(
    tmp_path: Path, init: str | None, command: str
) -> None:
    shutil.copy(ROOT / "fastq_worker.py", tmp_path)
    (tmp_path / "fastq").mkdir()
    if init is not None:
        (tmp_path / "fastq" / "__init__.py").write_text(init)
    done = run(tmp_path, f"import fastq_worker; fastq_worker.{command}()")
    assert done.returncode == 1
    assert done.stderr.startswith(f"fastq-worker: the package 'fastq' in {tmp_path / 'fastq'} is not")
    assert done.stderr.endswith(f"{REMEDY}\n")


def test_an_app_beside_a_file_that_hides_the_package_is_told_of_it(tmp_path: Path) -> None:
    (tmp_path / "fastq.py").write_text("from fastq import App\napp = App()\n")
    command = [sys.executable, "-P", "-c", "import fastq_worker; fastq_worker.run_worker()", "fastq:app"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "fastq-worker: the file fastq.py in this directory hides the package fastq from the app; rename it\n",
    )


@pytest.mark.parametrize("command", ["run_fastq", "run_worker"])
def test_ctrl_c_while_a_command_is_imported_leaves_no_traceback(tmp_path: Path, command: str) -> None:
    shutil.copy(ROOT / "fastq_worker.py", tmp_path)
    (tmp_path / "fastq").mkdir()
    (tmp_path / "fastq" / "__init__.py").write_text("__all__ = ['ServeMux']")
    (tmp_path / "fastq" / "cli.py").write_text("raise KeyboardInterrupt")
    done = run(tmp_path, f"import fastq_worker; fastq_worker.{command}()")
    assert (done.returncode, done.stderr) == (130, "")


def test_an_import_beside_files_of_the_other_project_warns(tmp_path: Path) -> None:
    package = tmp_path / "fastq"
    package.mkdir()
    for name in ("__init__.py", "_version.py", "errors.py"):
        shutil.copy(ROOT / "fastq" / name, package)
    shutil.copytree(ROOT / "fastq" / "common", package / "common")
    assert run(tmp_path, "import fastq").stderr == ""
    (package / "_fastq.py").touch()
    warned = run(tmp_path, "import fastq")
    assert warned.returncode == 0
    assert "RuntimeWarning: the PyPI project 'fastq'" in warned.stderr
    assert REMEDY in warned.stderr
