"""Mistakes that a run must find (``planted.toml``): ``python -m tests.simulation --plant NAME``.

An edit is made as its module is imported, or its script read.
"""

import sys
import tomllib
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]


class Mistake(NamedTuple):
    """An edit of a file of fastq."""

    file: str
    old: str
    new: str
    site: str = ""
    """The site on which it shows, if not on that of the command line."""
    short: Sequence[int] = ()
    full: int = 0
    """After how many seeds it was found; see the list."""

    def apply(self, text: str) -> str:
        """Return the text of the file with the edit, whose place stands in it once."""
        found = text.count(self.old)
        assert found == 1, f"{self.file} has this {found} times: {self.old}"
        return text.replace(self.old, self.new)


def read_mistakes(table: Path) -> dict[str, Mistake]:
    """Read a list of mistakes, by name."""
    return {name: Mistake(**fields) for name, fields in tomllib.loads(table.read_text("utf-8")).items()}


PLANTED: Final = read_mistakes(Path(__file__).with_suffix(".toml"))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, mistake: Mistake) -> None:
        super().__init__(name, path)
        self._mistake = mistake

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        return compile(self._mistake.apply(Path(self.path).read_text("utf-8")), self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, mistake: Mistake) -> None:
        self._mistake = mistake
        self._name = f"fastq/{mistake.file}".removesuffix(".py").replace("/", ".")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        found = PathFinder.find_spec(fullname, path)
        assert found is not None
        assert found.origin is not None
        return spec_from_loader(fullname, _Loader(fullname, found.origin, self._mistake), origin=found.origin)


def plant(mistake: Mistake) -> None:
    """Plant a mistake in this process, before it imports what the mistake is in."""
    sys.meta_path.insert(0, _Finder(mistake))
    read, place = Path.read_text, ROOT / "fastq" / mistake.file

    def read_text(path: Path, *args: Any, **options: Any) -> str:
        text = read(path, *args, **options)
        return mistake.apply(text) if path == place and path.suffix == ".lua" else text

    Path.read_text = read_text  # type: ignore[assignment, method-assign]
