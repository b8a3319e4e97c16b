"""mypy agrees with what public_api.py says of the public names."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_the_public_names_have_the_types_that_are_promised_and_a_broken_promise_is_found(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    text = (HERE / "public_api.py").read_text("utf-8")
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace("assert_type(info.id, str)", "assert_type(info.id, int)"), "utf-8")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(HERE / "public_api.py"), str(broken)]
    done = subprocess.run(command, cwd=HERE.parent.parent, capture_output=True, text=True)
    (line,) = done.stdout.splitlines()
    assert "/broken.py:" in line, "mypy's cache may say it with the directory of an earlier run"
    assert 'Expression is of type "str", not "int"' in line
