"""The command ``fastq schema``: what it prints, and with which code it ends."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fastq.cli.main import main

OLD = """
from fastq import App
app = App()
empty = App()

@app.task("media.resize", queue="media")
def resize(id: int, width: int | None = None) -> None: ...

@app.task("media.crop")
def crop(id: int) -> None: ...
"""
NEW = OLD.replace("int | None = None", "int = 640").replace("media.crop", "media.cut")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "old_jobs.py").write_text(OLD)
    (tmp_path / "new_jobs.py").write_text(NEW)
    yield tmp_path
    for name in ("old_jobs", "new_jobs"):
        sys.modules.pop(name, None)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["schema", *words])


def test_an_export_is_what_a_diff_takes(directory: Path) -> None:
    exported = run("export", "old_jobs:app")
    assert exported.exit_code == 0
    assert json.loads(exported.stdout)["tasks"]["media.crop"]["payload"]["required"] == ["id"]
    (directory / "old.json").write_text(exported.stdout)
    for old in ("old.json", "old_jobs:app"):
        found = run("diff", old, "new_jobs:app")
        assert (found.exit_code, found.stdout.splitlines()) == (
            1,
            [
                "media.crop: no task has this name any more",
                "media.resize: $.width no longer takes null, but integer",
            ],
        )
    assert (run("diff", "old.json", "old_jobs:app").exit_code, run("diff", "old.json", "old.json").stdout) == (0, "")


def test_go_is_written_for_a_package() -> None:
    written = run("go", "old_jobs:app", "--package", "jobs")
    assert written.exit_code == 0
    assert "\npackage jobs\n" in written.stdout
    assert 'const TypeMediaResize = "media.resize"\n' in written.stdout
    assert 'asynq.Queue("media"),' in written.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["export", "old_jobs:empty"], "'old_jobs:empty' has no typed tasks"),
        (["export", "old_jobs:resize"], "must be a fastq.App, not TypedTask"),
        (["export", "old_jobs:ap"], "did you mean 'app'?"),
        (
            ["diff", "nowhere.json", "old_jobs:app"],
            "nowhere.json is neither module:attr nor a file of fastq schema export: No such file",
        ),
        (["diff", "other.json", "old_jobs:app"], "other.json is not a file of fastq schema export of format 1"),
        (["go", "old_jobs:app", "-p", "My-Jobs"], "a Go package is named by lower-case letters"),
    ],
)
def test_misuse_is_said_with_code_2(words: list[str], text: str, directory: Path) -> None:
    (directory / "other.json").write_text('{"format": 2}')
    done = run(*words)
    assert done.exit_code == 2
    assert text in done.stderr
