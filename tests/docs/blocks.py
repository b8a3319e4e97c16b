"""The blocks of code on the project's pages."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"^```(\S*) ?(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Code, its language, and what the page says beside it.

    Python without a note is run and type-checked; "typed" is only checked, for what cannot be run; "compiled" is only
    compiled, for code of other libraries.
    """

    page: Path
    line: int
    language: str
    note: str
    code: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Return a page's blocks in their order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2], found[3])
        for found in FENCE.finditer(text)
    ]


def blocks_as_one_program(page: Path) -> list[Block]:
    """Return a page's blocks without their imports from files that the page shows: these have run before."""
    blocks = blocks_of(page)
    files = re.findall(r"^# (\w+)\.py$", "\n".join(block.code for block in blocks), re.MULTILINE)
    imports = re.compile(rf"^from ({'|'.join(files) or '-'}) import .*$", re.MULTILINE)
    return [replace(block, code=imports.sub("", block.code)) for block in blocks]
