"""mypy agrees with what public_api.py says of the public names."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def check(*files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, files)],
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_public_names_have_the_types_that_are_promised() -> None:
    pytest.importorskip("mypy")
    done = check(HERE / "public_api.py")
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.slow
def test_a_broken_promise_is_found(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    text = (HERE / "public_api.py").read_text("utf-8")
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace("assert_type(info.id, str)", "assert_type(info.id, int)"), "utf-8")
    done = check(broken)
    assert done.returncode == 1
    assert 'Expression is of type "str", not "int"' in done.stdout
