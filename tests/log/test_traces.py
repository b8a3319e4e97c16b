"""Tracebacks cut down to the user's own frames."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from fastq.log.traces import own_trace


def trace_of_import(modules: Path, code: str) -> list[str]:
    (modules / "cut_app.py").write_text(code)
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - SystemExit, too
        importlib.import_module("cut_app")
    return own_trace(raised.value).splitlines()


def places(lines: list[str]) -> list[str]:
    """Return file and line of each frame but this file's own."""
    found = re.findall(r'File "(.*)", line (\d+)', "\n".join(lines))
    return [f"{Path(file).name} {line}" for file, line in found if file != __file__]


def test_frames_of_imports_and_libraries_are_left_out(modules: Path) -> None:
    lines = trace_of_import(modules, "import json\ndef go():\n    json.loads('{')\ngo()\n")
    assert places(lines) == ["cut_app.py 4", "cut_app.py 3"]
    assert lines[-1].startswith("json.decoder.JSONDecodeError: ")


def test_frames_of_fastq_are_left_out_and_a_cause_is_cut_too(modules: Path) -> None:
    code = "import fastq\ntry:\n    fastq.App('http://x')\nexcept ValueError as error:\n    raise KeyError from error\n"
    lines = trace_of_import(modules, code)
    assert places(lines) == ["cut_app.py 3", "cut_app.py 5"]
    assert lines[-1] == "KeyError"


def test_an_error_without_frames_of_the_user_shows_those_of_libraries() -> None:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    trace = raised.value.__traceback__
    assert "decoder.py" in own_trace(raised.value.with_traceback(trace and trace.tb_next))


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("import not_installed.anywhere", f"not_installed is not installed for {sys.executable}, or lies in no "),
        ("raise SystemExit(3)", "an import must not end the process: "),
        ("raise ValueError('x')", "ValueError: x"),
        ("def broken(:", "SyntaxError: "),
    ],
)
def test_a_hint_says_what_to_do_where_that_is_known(modules: Path, code: str, hint: str) -> None:
    assert trace_of_import(modules, code)[-1].startswith(hint)


def test_errors_that_cause_each_other_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert "one" in own_trace(one)
