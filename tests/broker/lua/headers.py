"""The headers of the Lua scripts, read: what goes in, what comes out, and the facts."""

import re
from dataclasses import dataclass

_HEADER = re.compile(
    r"\A(?:--!df [^\n]*\n)?(?:do --[^\n]*\n(?:  [^\n]*\n)*end\n)?"
    r"--\[\[\s*(?P<name>\w+): (?P<summary>.+?)\n(?P<body>.*?)\]\]",
    re.DOTALL,
)
_ENTRY = re.compile(r"^(?P<table>KEYS|ARGV)\[(?P<index>\d+)(?P<rest>\.\.\.)?\]\s+(?P<name>\w+)\s+(?P<meaning>.+)$")
_FACT = re.compile(r"^(?P<fact>builds|returns|asynq|cost)\s+(?P<text>.+)$")


@dataclass(frozen=True, slots=True)
class ScriptHeader:
    """The contents of a script's header: ``keys`` and ``args`` are names in order, ``facts`` are the lines after them.

    ``repeated`` names the last argument if it stands for all that follow; with ``repeated_keys`` the last key does.
    """

    name: str
    summary: str
    keys: tuple[str, ...]
    key_patterns: tuple[str, ...]
    args: tuple[str, ...]
    repeated: str | None
    repeated_keys: bool
    facts: dict[str, str]


def parse_header(text: str) -> ScriptHeader:
    """Read a script's header; ``ValueError`` names the first line that is not understood."""
    match = _HEADER.match(text)
    if match is None:
        raise ValueError("a script begins with --[[ name: what it does")
    tables: dict[str, list[tuple[str, str]]] = {"KEYS": [], "ARGV": []}
    facts: dict[str, str] = {}
    repeated: dict[str, str] = {}
    last = None
    for line in match["body"].splitlines():
        if entry := _ENTRY.match(line):
            entries = tables[entry["table"]]
            entries.append((entry["name"], entry["meaning"]))
            if int(entry["index"]) != len(entries):
                raise ValueError(f"{match['name']}: {entry['table']}[{entry['index']}] is out of order")
            if entry["rest"]:
                repeated[entry["table"]] = entry["name"]
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
        repeated=repeated.get("ARGV"),
        repeated_keys="KEYS" in repeated,
        facts=facts,
    )
