"""The Lua scripts: one file each in ``lua/``, opened by a header that says what goes in and what comes out.

A test holds the header against the body. Lines that several scripts share stand in a file ``_<name>.lua``;
``-- include: <name>`` puts them in its place. Scripts are known to Redis by the SHA-1 of their text; the executors send
the text when Redis has forgotten one.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

__all__ = ["Script", "load_script", "script_names"]

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
            whole = _INCLUDE.sub(lambda include: texts[f"_{include[1]}"], text)
            found[name] = Script(name, whole, hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest())
    return found


# All at once, at the import: a process that runs while fastq is upgraded in place goes on with its own scripts, and
# none is missing to one that is out of descriptors. Takes 3 ms.
_SCRIPTS = _read_all()


def load_script(name: str) -> Script:
    """Return ``lua/<name>.lua`` as it was when this process began; an unknown name is a ``KeyError``."""
    return _SCRIPTS[name]


def script_names() -> list[str]:
    """List the names of all scripts."""
    return sorted(_SCRIPTS)
