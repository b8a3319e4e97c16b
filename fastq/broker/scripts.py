"""The Lua scripts: one file each in ``lua/``, with a header that describes its input and output.

A test checks the header against the body. Lines shared by several scripts are in a file ``_<name>.lua``;
``-- include: <name>`` inserts them. Redis knows a script by the SHA-1 of its text; the executors send the text when
Redis has forgotten it.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

__all__ = ["Script", "load_script", "script_names"]

_FOR_DRAGONFLY = "--!df flags=allow-undeclared-keys\n"
"""Dragonfly runs a script that builds keys only if this is its first line; to others it is a comment."""
_INCLUDE = re.compile(r"^-- include: (\w+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the SHA-1 by which Redis knows it."""

    name: str
    text: str
    sha: str


def _read_all() -> dict[str, Script]:
    files = (resources.files("fastq.broker") / "lua").iterdir()
    texts = {file.name.removesuffix(".lua"): file.read_text("utf-8") for file in files if file.name.endswith(".lua")}
    found = {}
    for name, text in texts.items():
        if not name.startswith("_"):
            whole = _FOR_DRAGONFLY + _INCLUDE.sub(lambda include: texts[f"_{include[1]}"], text)
            found[name] = Script(name, whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())
    return found


# All at once, at the import: a process that runs during an in-place upgrade of fastq keeps its own scripts, and a #
# process without free descriptors can still load them. Takes 3 ms.
_SCRIPTS = _read_all()


def load_script(name: str) -> Script:
    """Return ``lua/<name>.lua`` as it was when this process started; an unknown name raises ``KeyError``."""
    return _SCRIPTS[name]


def script_names() -> list[str]:
    """List the names of all scripts."""
    return sorted(_SCRIPTS)
