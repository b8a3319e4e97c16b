"""The Lua scripts: one file each in ``lua/``, with a header that describes its input and output.

A test checks the header against the body. Lines shared by several scripts are in a file ``_<name>.lua``;
``-- include: <name>`` inserts them. Lines put before the header ask Redis whether its user may run all commands of the
script, so that a refusal comes before the first write. Redis knows a script by the SHA-1 of its text; the executors
send the text when Redis has forgotten it.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from fastq.broker.twins import TWINS, twin_of

_FOR_DRAGONFLY = "--!df flags=allow-undeclared-keys\n"
"""Dragonfly runs a script that makes key names only if this is its first line; to other servers it is a comment."""
_RIGHTS = "-- rights\n"
"""The line at which a script asks for its rights; a script without this line asks first.

At most one write is above it.
"""
_INCLUDE = re.compile(r"^-- include: (\w+)\n", re.MULTILINE)
_BUILDS = re.compile(r"^builds\s+(?!\s|none\b)", re.MULTILINE)
_CALL = re.compile(r'redis\.(p?call)\(\s*"(\w+)"')
_ALLOWED = """\
do -- Redis checks each command by itself: a refusal after the first write would leave half of the work.
  local may, key = redis.acl_check_cmd, KEYS[1] -- Redis 6.2 cannot tell
  local refused = may
    and ({asked})
  if refused then
    return redis.error_reply("NOPERM this user has no permissions to run the '" .. refused .. "' command")
  end
end
"""
_NOT_ASKED = {"MEMORY", "PUBLISH"}
"""The right to these depends on a subcommand or a channel.

No script calls one of them after a write, except by ``pcall``.
"""
_SURVIVED = {"LLEN", "LSET", "SREM", "ZREM"}
"""Scripts that call these by ``pcall`` survive a refusal: they use another command, or leave the work to others."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the SHA-1 by which Redis knows it.

    ``builds_keys`` says that the script touches keys that its callers do not declare.
    """

    name: str
    text: str
    sha: str
    builds_keys: bool = False


def _with_question(text: str) -> str:
    """Return a script that asks Redis whether its user may run the script's commands: first, or at ``-- rights``."""
    calls = {(how, command) for how, command in _CALL.findall(text) if command not in _NOT_ASKED}
    names = sorted({command for how, command in calls if how == "call" or command not in _SURVIVED})
    if not names:
        return text
    asked = (f'not may("{name}", key, key) and "{name}"' for name in names)
    question = _ALLOWED.format(asked="\n      or ".join(asked))
    before, marker, after = text.partition(_RIGHTS)
    return before + question + after if marker else question + text


def _read_all() -> dict[str, Script]:
    files = (resources.files("fastq.broker") / "lua").iterdir()
    texts = {file.name.removesuffix(".lua"): file.read_text("utf-8") for file in files if file.name.endswith(".lua")}
    found = {}
    texts |= {f"{name}_lanes": twin_of(name, texts[TWINS[name].of or name]) for name in TWINS}
    for name, text in texts.items():
        if not name.startswith("_"):
            whole = _FOR_DRAGONFLY + _with_question(_INCLUDE.sub(lambda include: texts[f"_{include[1]}"], text))
            sha = hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest()
            found[name] = Script(name, whole, sha, _BUILDS.search(text) is not None)
    return dict(sorted(found.items()))


SCRIPTS: Final = _read_all()
"""The scripts by name, in order.

All are read at the import, in 3 ms. So a process that runs during an in-place upgrade of fastq keeps its own scripts,
and a process without free descriptors can still use them.
"""
