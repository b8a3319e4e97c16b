"""Which files a worker with --reload looks at, and when it says that they have changed."""

import asyncio
from pathlib import Path

import pytest

from fastq.server.children import source_watch
from fastq.server.children.source_watch import watch_sources


@pytest.mark.parametrize(
    ("name", "is_seen"),
    [
        ("app.py", True),
        ("deep/er/app.py", True),
        ("notes.txt", False),
        (".hidden/app.py", False),
        ("env/lib/app.py", False),
        ("node_modules/app.py", False),
        ("__pycache__/app.py", False),
    ],
)
def test_python_files_of_the_user_are_looked_at(name: str, is_seen: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "env").mkdir(exist_ok=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    path.touch()
    assert list(source_watch._looks(tmp_path)) == ([str(path)] if is_seen else [])


def test_each_change_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_watch, "LOOK_EVERY_S", 0)
    path, other = tmp_path / "app.py", tmp_path / "other.py"
    path.write_text("1")
    first = source_watch._looks(tmp_path)
    looks = iter([first])
    look = source_watch._looks
    # The first look is as it was before the changes; all others are real.
    monkeypatch.setattr(source_watch, "_looks", lambda directory: next(looks, None) or look(directory))

    async def watch() -> None:
        told: asyncio.Queue[None] = asyncio.Queue()
        path.write_text("22")
        watching = asyncio.create_task(watch_sources(tmp_path, lambda: told.put_nowait(None)))
        await told.get()
        other.touch()
        await told.get()
        path.unlink()
        await told.get()
        watching.cancel()
        assert told.empty()

    asyncio.run(watch())
