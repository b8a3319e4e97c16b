"""The table of planted mistakes: ``mutants.toml``, each with the tests that are to fail on it."""

import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
INCLUDE: Final = re.compile(r'^include "(.*)"$', re.MULTILINE)


class Mutant(NamedTuple):
    """A mistake: in ``file``, ``find`` becomes ``put``.

    ``tests`` are pytest's arguments. With ``whole``, only ``make test-all`` runs these.
    """

    name: str
    file: str
    find: str
    put: str
    tests: list[str]
    whole: bool = False


def read_mutants() -> list[Mutant]:
    """Return the table."""
    text = Path(__file__).with_name("mutants.toml").read_text("utf-8")
    return [Mutant(name, **fields) for name, fields in tomllib.loads(text).items()]


def extension_of(file: str, root: Path = ROOT) -> str | None:
    """Return the source of the extension that a file is a part of, None for Python and Lua."""
    path = root / file
    if path.suffix == ".pyx":
        return file
    if path.suffix != ".pxi":
        return None
    (whole,) = (
        source for source in path.parent.glob("*.pyx") if path.name in INCLUDE.findall(source.read_text("utf-8"))
    )
    return whole.relative_to(root).as_posix()
