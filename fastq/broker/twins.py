"""The twins of scripts, for queues with lanes: each contains the plain script, unchanged, as a function.

So a queue without lanes pays nothing, and a twin keeps the promises of its plain script.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple


class _Twin(NamedTuple):
    """The lines of a twin around the plain script.

    ``find`` is code that finds the tasks of a call. The other fields name files of shared lines.

    ``of`` is the name of the plain script, if it differs from the twin's. ``tasks`` is the header line of the last
    arguments, if the twin takes more values for each task.
    """

    find: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    of: str = ""
    tasks: str = ""

    @property
    def has_turns(self) -> bool:
        """Return whether the twin changes turns and places. If not, it needs no key but the rules."""
        return "turns" in self.before


_LANES: Final = ("pools", "lanes", "lane_keys", "turns")
_BACK: Final = (*_LANES, "rules_of", "lane_rules", "orders", "rank", "lanes_of", "front_is_open")


def _ended(ids: str, *, back: bool = False, before: tuple[str, ...] = (), first: str = "all_end") -> _Twin:
    """Return the twin of a script that takes tasks off active; ``ids`` is the range of their ids in ARGV.

    ``back``: the tasks return to their lanes. ``before`` names more shared lines. ``first`` names the lines that decide
    which lanes keep their places.
    """
    find = f"local named_ids = {{}}\nfor at = {ids} do named_ids[#named_ids + 1] = ARGV[at] end"
    if back:
        return _Twin(find, _BACK, ("ended", "all_end", "free_places", "back_into_lanes"))
    return _Twin(find, (*_LANES, *before, "lanes_of"), ("ended", first, "free_places"))


TWINS: Final[Mapping[str, _Twin]] = {
    "aggregation_check": _Twin("", ("pools", "rules_of", "lane_rules", "no_lane"), ()),
    "archive": _ended("9, #ARGV, 3"),
    "complete": _ended("5, #ARGV, 5"),
    "done": _Twin(
        "-- include: lanes_told",
        _LANES,
        ("ended", "all_end", "free_places"),
        tasks='tasks  count ids, then id, lock key for each that has one, then count lanes, "" for none',
    ),
    "enqueue_tick": _Twin(
        "-- include: task_prefix",
        (*_LANES, "rules_of", "lane_rules", "new_lanes", "orders", "rank"),
        ("tick_in_lane",),
    ),
    "forward": _Twin(
        "-- include: due_ids", (*_LANES, "rules_of", "lane_rules", "orders", "rank", "lanes_of"), ("turns_of_due",)
    ),
    "park": _Twin(
        "-- include: parked_ids",
        _BACK,
        ("ended", "rest", "all_end", "free_places", "back_into_lanes"),
        of="requeue",
        tasks="tasks  two values each: id, microseconds for which its lane rests",
    ),
    "put_back": _ended("6, #ARGV, 3", back=True),
    "requeue": _ended("5, #ARGV", back=True),
    "retry": _ended("7, #ARGV, 5", before=("rules_of", "orders"), first="sequences_wait"),
    "scan_groups": _Twin("", ("pools", "rules_of", "lane_rules"), ("without_lanes",)),
    "schedule": _Twin(
        "-- include: lanes_given",
        ("pools", "rules_of", "lane_rules", "new_lanes"),
        ("ended", "keep_priorities", "open_lanes"),
        tasks='tasks       seven values each: id, message, unix seconds, lock key or "", lock seconds, lane, priority',
    ),
}
_KEYS: Final = {"groups": "groups", "limits": "limits", "turns": "turns", "full_lanes": "full", "bell": "bell"}
_BINDS: Final = re.compile(r"local [\w, ]+ = (?:tonumber\()?(?:KEYS|ARGV)\[")


def twin_of(name: str, plain: str) -> str:
    """Return the text of a twin, made from the text of its plain script, before shared lines are inserted."""
    twin = TWINS[name]
    head, body = plain.split("]]\n", 1)
    facts = head.splitlines()[1:]
    if twin.tasks:
        facts = [re.sub(r"^(ARGV\[\d+\.\.\.\]) .*", rf"\1 {twin.tasks}", line) for line in facts]
    first_arg = next(at for at, line in enumerate(facts) if line.startswith("ARGV["))
    more = [
        key
        for key in (_KEYS if twin.has_turns else ("limits",))
        if not any(re.match(rf"KEYS\[\d+\] {key} ", line) for line in facts)
    ]
    numbered = list(enumerate(more, first_arg + 1))
    facts[first_arg:first_arg] = [f"KEYS[{at}] {key}  asynq:{{q}}:{_KEYS[key]}" for at, key in numbered]
    if twin.has_turns:
        facts = [re.sub(r"^builds\s+", "builds  queue_prefix .. what lanes have,\n  ", line) for line in facts]
    lines = body.splitlines()
    bound = next(at for at, line in enumerate(lines) if not _BINDS.match(line))
    return "\n".join(
        [
            f"--[[ {name}_lanes: as {twin.of or name}, in a queue with lanes.",
            *facts,
            "]]",
            f"local {', '.join(more)} = {', '.join(f'KEYS[{at}]' for at, _ in numbered)}",
            *lines[:bound],
            twin.find,
            *(f"-- include: {one}" for one in twin.before),
            "local function plain()",
            *lines[bound:],
            "end",
            "local outcomes = plain()",
            'if type(outcomes) == "table" and outcomes.err then return outcomes end',
            *(f"-- include: {one}" for one in twin.after),
            "return outcomes",
            "",
        ]
    )
