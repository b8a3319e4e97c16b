"""The quick set leaves out what is there, and says it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick import LEFT_OUT, MARKS, ROOT


def quick(*arguments: str, plugin: str = "tests.quick") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", plugin, "-p", "no:cacheprovider", "-o", "addopts=", *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # those of other packages take half of a start
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_what_is_left_out_is_there() -> None:
    assert [path for path in LEFT_OUT if not (ROOT / path).exists()] == []


def test_the_marks_are_known(pytestconfig: pytest.Config) -> None:
    assert set(MARKS) <= {line.partition(":")[0] for line in pytestconfig.getini("markers")}


@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "--numprocesses", "2"]], ids=["one process", "two"])
def test_it_ends_with_what_it_left_out(workers: list[str], tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes long\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.slow\ndef test_a():\n    assert False\n\ndef test_b():\n    pass\n"
    )
    done = quick("-c", str(tmp_path / "pytest.ini"), str(tmp_path), *workers)
    assert done.returncode == 0, done.stdout
    assert "tests/e2e: " in done.stdout
    assert "1 tests marked slow: " in done.stdout
    assert "1 passed" in done.stdout


def test_a_file_is_left_out_unless_it_is_named() -> None:
    path = "tests/chaos/test_chaos.py"
    assert path in LEFT_OUT
    in_its_folder = quick("tests/chaos", "--collect-only", "--quiet").stdout
    assert "tests/chaos/test_plan.py::" in in_its_folder
    assert f"{path}::" not in in_its_folder
    assert f"{path}::" in quick(path, "--collect-only", "--quiet").stdout


def test_the_rest_is_what_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes long\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.slow\ndef test_a():\n    pass\n\ndef test_b():\n    assert False\n"
    )
    marked = quick("-c", str(tmp_path / "pytest.ini"), str(tmp_path), plugin="tests.rest")
    assert "1 passed, 1 deselected" in marked.stdout
    found = quick("tests/chaos", "--collect-only", "--quiet", plugin="tests.rest").stdout
    assert "tests/chaos/test_chaos.py::" in found
    assert "tests/chaos/topology/test_topology.py::" in found
    assert "tests/chaos/test_plan.py::" not in found
