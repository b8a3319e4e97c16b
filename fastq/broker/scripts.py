"""The Lua scripts: one file each in ``lua/``, opened by a header that says what goes in and what comes out.

The header is machine-read (``ScriptHeader``); a test holds it against the body. Lines that several scripts share stand
in a file ``_<name>.lua``; ``-- include: <name>`` puts them in its place. Scripts are known to Redis by the SHA-1 of
their text; the executors send the text when Redis has forgotten one.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

__all__ = ["Script", "ScriptHeader", "load_script", "parse_header", "script_names"]

_HEADER = re.compile(r"\A--\[\[\s*(?P<name>\w+): (?P<summary>.+?)\n(?P<body>.*?)\]\]", re.DOTALL)
_ENTRY = re.compile(r"^(?P<table>KEYS|ARGV)\[(?P<index>\d+)(?P<rest>\.\.\.)?\]\s+(?P<name>\w+)\s+(?P<meaning>.+)$")
_FACT = re.compile(r"^(?P<fact>builds|returns|asynq|cost)\s+(?P<text>.+)$")
_INCLUDE = re.compile(r"^-- include: (\w+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the SHA-1 by which Redis knows it."""

    name: str
    text: str
    sha: str


@dataclass(frozen=True, slots=True)
class ScriptHeader:
    """The contents of a script's header: ``keys`` and ``args`` are names in order, ``facts`` are the lines after them.

    ``repeated`` names the last argument if it stands for all that follow.
    """

    name: str
    summary: str
    keys: tuple[str, ...]
    key_patterns: tuple[str, ...]
    args: tuple[str, ...]
    repeated: str | None
    facts: dict[str, str]


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


def parse_header(text: str) -> ScriptHeader:
    """Read a script's header; ``ValueError`` names the first line that is not understood."""
    match = _HEADER.match(text)
    if match is None:
        raise ValueError("a script begins with --[[ name: what it does")
    tables: dict[str, list[tuple[str, str]]] = {"KEYS": [], "ARGV": []}
    facts: dict[str, str] = {}
    repeated = last = None
    for line in match["body"].splitlines():
        if entry := _ENTRY.match(line):
            entries = tables[entry["table"]]
            entries.append((entry["name"], entry["meaning"]))
            if int(entry["index"]) != len(entries):
                raise ValueError(f"{match['name']}: {entry['table']}[{entry['index']}] is out of order")
            repeated = entry["name"] if entry["rest"] else repeated
        elif fact := _FACT.match(line):
            last = fact["fact"]
            facts[last] = fact["text"]
        elif line.startswith("  ") and last:
            facts[last] += " " + line.strip()
        elif line.strip():
            raise ValueError(f"{match['name']}: cannot read the header line {line!r}")
    return ScriptHeader(
        name=match["name"],
        summary=" ".join(match["summary"].split()),
        keys=tuple(name for name, _ in tables["KEYS"]),
        key_patterns=tuple(meaning.split()[0] for _, meaning in tables["KEYS"]),
        args=tuple(name for name, _ in tables["ARGV"]),
        repeated=repeated,
        facts=facts,
    )
