"""Compare what is in Redis with what Go asynq left there (golden/keyspace.json), cell by cell.

A cell is one value: a field of a hash, the members of a set, one score, a time to live. Values that are times are
``Moment``s and are judged relative to when the operation ran; all others must be equal to the byte. What fastq writes
otherwise on purpose stands in differences.toml.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from redis import Redis

from fastq.wire.attempts import decode_attempts
from fastq.wire.codec import decode_task_message, encode_task_message

FASTQS_OF_A_TASK = {"key_outcome", "lost", "progress"}
"""What only fastq tells of a task: fields of ``TaskInfo`` that asynq has not."""

HERE = Path(__file__).parent
RANKS = "members by rank"
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
VARYING = (
    (re.compile(r"(?<=:)\d{4}-\d\d-\d\d$"), "<day>"),
    (re.compile(rf"[^:{{]+:\d+:{UUID}"), "<host:pid:id>"),
    (re.compile(UUID), "<uuid>"),
)
"""Parts of keys and members that differ from run to run, and what stands for them here."""


class Window(NamedTuple):
    """Bound the time in which an operation ran, in Unix seconds."""

    start_s: float
    end_s: float


@dataclass(frozen=True)
class Moment:
    """A time on the wire; ``slack_s`` is its tolerance, because it is kept in whole seconds.

    A tenth more than the second, since what is left of a time to live is read in milliseconds, and a little later.
    """

    unix_s: float
    slack_s: float = 1.1

    def matches(self, other: "Moment", ours: Sequence[Window], theirs: Sequence[Window]) -> bool:
        """Return whether both lie equally long after one and the same step of their runs."""
        slack_s = max(self.slack_s, other.slack_s)
        return any(
            self.unix_s - our.end_s - slack_s <= other.unix_s - their.start_s
            and other.unix_s - their.end_s - slack_s <= self.unix_s - our.start_s
            for our, their in zip(ours, theirs, strict=True)
        )


class Place(NamedTuple):
    """Name a cell: a Redis key or ``returned[n]``, and the part of its value."""

    key: str
    part: str


Value: TypeAlias = str | tuple[str, ...] | Moment
Cells: TypeAlias = dict[Place, Value]


class Difference(NamedTuple):
    """What Go has and what was found in a place; ``None`` stands for nothing there."""

    golden: Value | None
    found: Value | None


@dataclass(frozen=True)
class GoldenStep:
    """The keyspace after one step of a golden case; ``windows`` are those of the steps until then."""

    case: str
    step: int
    label: str
    cells: Cells
    returned: Sequence[Mapping[str, Any]]
    windows: tuple[Window, ...]


def snapshot(db: Redis, without: tuple[bytes, ...] = ()) -> Cells:
    """Read the whole keyspace at one moment, but for keys that begin with one of some texts."""
    cells: Cells = {}
    answer: Any = db.eval(_READ_ALL, 0)
    seconds, microseconds, *found = answer
    # Redis' own clock: on a busy machine it may take long until this process is given the answer.
    read_at = int(seconds) + int(microseconds) / 1e6
    for key, kind, left_ms, value in found:
        if key.startswith(without):
            continue
        expires, of_value = _cells_as_read(key, kind, value)
        cells |= of_value
        if left_ms >= 0:
            cells[expires] = Moment(read_at + left_ms / 1000)
    return cells


_READ_ALL = """
local read = {
  string = function(key) return redis.call('GET', key) end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  list = function(key) return redis.call('LRANGE', key, 0, -1) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  hash = function(key) return redis.call('HGETALL', key) end,
}
local keys = redis.call('KEYS', '*')
table.sort(keys)
local found = redis.call('TIME')
for i, key in ipairs(keys) do
  local kind = redis.call('TYPE', key).ok
  found[i + 2] = {key, kind, redis.call('PTTL', key), cjson.encode(read[kind](key))}
end
return found
"""


@lru_cache(maxsize=10_000)
def _cells_as_read(raw_key: bytes, kind: bytes, value: bytes) -> tuple[Place, Cells]:
    """Return the cells of a value, and the place of its time to live; most are the same from one look to the next."""
    key = _text(raw_key)
    content = json.loads(value.decode("latin-1"))  # cjson gives bytes as they are
    return Place(_settled(key), "ttl"), _cells_of_key(key, kind.decode(), _READERS[kind.decode()](content), None)


def _raw(text: str) -> bytes:
    return text.encode("latin-1")


def _pairs(flat: Sequence[str]) -> Iterable[tuple[bytes, str]]:
    return ((_raw(flat[index]), flat[index + 1]) for index in range(0, len(flat), 2))


_READERS: Mapping[str, Any] = {
    "string": _raw,
    "set": lambda members: {_raw(member) for member in members},
    "list": lambda elements: [_raw(element) for element in elements],
    "zset": lambda flat: [(member, float(score)) for member, score in _pairs(flat)],
    "hash": lambda flat: {name: _raw(value) for name, value in _pairs(flat)},
}


@cache
def _golden_file() -> dict[str, list[dict[str, Any]]]:
    content = json.loads((HERE / "golden" / "keyspace.json").read_text("utf-8"))
    return {case["name"]: case["steps"] for case in content["cases"]}


def golden(case: str, step: int = 0) -> GoldenStep:
    """Return what Go left after a step of a case."""
    steps = _golden_file()[case]
    read_at = steps[step]["t_dump_unix"]
    cells: Cells = {}
    for entry in steps[step]["keys"]:
        expires = read_at + entry["ttl"]["pttl_ms"] / 1000 if entry["ttl"] else None
        cells |= _cells_of_key(entry["key"], entry["type"], _golden_value(entry), expires)
    windows = tuple(Window(each["t_start_unix"], each["t_dump_unix"]) for each in steps[: step + 1])
    return GoldenStep(case, step, steps[step]["label"], cells, steps[step]["returned"] or (), windows)


def _golden_value(entry: Mapping[str, Any]) -> Any:
    match entry["type"]:
        case "string":
            return _bytes(entry["value"])
        case "set":
            return {_bytes(member) for member in entry["members"]}
        case "list":
            return [_bytes(element) for element in entry["elements_lrange_0_-1"]]
        case "zset":
            return [(_bytes(each["member"]), each["score"]) for each in entry["members_by_rank"]]
        case _:
            return {name.encode(): _bytes(value) for name, value in entry["fields"].items()}


def _bytes(value: str | Mapping[str, Any]) -> bytes:
    return value.encode() if isinstance(value, str) else bytes.fromhex(value["hex"])


def _cells_of_key(raw_key: str, kind: str, value: Any, expires_unix_s: float | None) -> Cells:
    key = _settled(raw_key)
    cells = {Place(key, part): content for part, content in _CELLS_OF_KIND[kind](raw_key, value)}
    if expires_unix_s is not None:
        cells[Place(key, "ttl")] = Moment(expires_unix_s)
    return cells


def _cells_of_string(key: str, value: bytes) -> Iterable[tuple[str, Value]]:
    yield "string", Moment(int(value)) if key.endswith(":paused") else _text(value)


def _cells_of_hash(_key: str, fields: Mapping[bytes, bytes]) -> Iterable[tuple[str, Value]]:
    for name, value in fields.items():
        match name:
            case b"msg":
                yield from _cells_of_message(value)
            case b"pending_since":
                yield "pending_since", Moment(int(value) / 1e9, slack_s=0.001)
            case b"attempts":
                yield "attempts", tuple(f"{one.attempt} {one.error}" for one in decode_attempts(value))
            case _:
                yield _settled(_text(name)), _text(value)


def _cells_of_message(data: bytes) -> Iterable[tuple[str, Value]]:
    message = decode_task_message(data)
    times = {name: getattr(message, name) for name in ("last_failed_at", "completed_at") if getattr(message, name)}
    # Only a message with times in it is taken apart; all others are compared as they are, to the byte.
    yield "msg", (encode_task_message(message.replace(**dict.fromkeys(times, 0))) if times else data).hex()
    for name, unix_s in times.items():
        yield f"msg.{name}", Moment(unix_s)


def _cells_of_zset(_key: str, scored: Sequence[tuple[bytes, float]]) -> Iterable[tuple[str, Value]]:
    members = [_settled(_text(member)) for member, _ in scored]
    yield RANKS, tuple(members)
    for member, (_, score) in zip(members, scored, strict=True):
        yield f"score of {member}", Moment(score)


_CELLS_OF_KIND: Mapping[str, Any] = {
    "string": _cells_of_string,
    "set": lambda _, members: [("members", tuple(sorted(_settled(_text(member)) for member in members)))],
    "list": lambda _, elements: [("elements", tuple(_settled(_text(element)) for element in elements))],
    "zset": _cells_of_zset,
    "hash": _cells_of_hash,
}


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "hex:" + data.hex()


def _settled(text: str) -> str:
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return text


def differences_between(expected: GoldenStep, found: Cells, windows: Sequence[Window]) -> dict[Place, Difference]:
    """Compare a snapshot with a golden step; ``windows`` bound each step of this run until the snapshot."""
    return {
        place: Difference(expected.cells.get(place), found.get(place))
        for place in sorted(expected.cells.keys() | found.keys())
        if not _same(expected.cells.get(place), found.get(place), expected.windows, windows)
        and not (place.part == RANKS and _is_in_order(place.key, expected.cells, found))
    }


def _is_in_order(key: str, expected: Cells, found: Cells) -> bool:
    """Return whether a sorted set has the expected members, in their order but for those of about the same second.

    Scores are whole seconds: which of two tasks comes first depends on whether a second ended between them.
    """
    ranks = Place(key, RANKS)
    ours, theirs = found.get(ranks, ()), expected.get(ranks, ())
    if not isinstance(ours, tuple) or not isinstance(theirs, tuple) or sorted(ours) != sorted(theirs):
        return False
    scores = [expected.get(Place(key, f"score of {member}")) for member in ours]
    return all(
        isinstance(one, Moment) and isinstance(next_one, Moment) and one.unix_s <= next_one.unix_s + one.slack_s
        for one, next_one in pairwise(scores)
    )


def _same(one: Value | None, other: Value | None, ours: Sequence[Window], theirs: Sequence[Window]) -> bool:
    if isinstance(one, Moment) and isinstance(other, Moment):
        return one.matches(other, ours, theirs)
    return one == other


@dataclass
class IntendedDifferences:
    """The entries of differences.toml, and which of them were needed.

    An entry names case, step, key and row of the table in wire.md, and gives under ``fastq`` what is in each part of
    the key's value instead: text, a list of texts, ``t+seconds`` for a time, or false for nothing.
    """

    entries: list[dict[str, Any]] = field(
        default_factory=lambda: tomllib.loads((HERE / "differences.toml").read_text("utf-8"))["difference"]
    )
    used: set[tuple[str, int, Place]] = field(default_factory=set)

    def of(self, case: str, step: int) -> dict[Place, Value | None]:
        """Return what fastq is to have instead in the places that differ on purpose."""
        return {
            Place(entry["key"], part): _written(value)
            for entry in self.entries
            if (entry["case"], entry["step"]) == (case, step)
            for part, value in entry["fastq"].items()
        }

    def unexplained(
        self, expected: GoldenStep, differences: Mapping[Place, Difference], windows: Sequence[Window]
    ) -> dict[Place, Difference]:
        """Return the differences that are not intended, or are not what the entry says; note the entries used."""
        intended = self.of(expected.case, expected.step)
        left = {}
        for place, difference in differences.items():
            if place in intended and _same(_timed(intended[place], windows[-1]), difference.found, windows, windows):
                self.used.add((expected.case, expected.step, place))
            else:
                left[place] = difference
        return left

    def unused(self, cases: Iterable[str]) -> list[tuple[str, int, Place]]:
        """Return what entries for these cases allow without need."""
        return sorted(
            (entry["case"], entry["step"], place)
            for entry in self.entries
            if entry["case"] in cases
            for place in (Place(entry["key"], part) for part in entry["fastq"])
            if (entry["case"], entry["step"], place) not in self.used
        )


def _written(value: str | list[str] | bool) -> Value | None:
    if isinstance(value, bool):
        assert value is False, "what fastq writes is text, a list, or false for nothing"
        return None
    return tuple(value) if isinstance(value, list) else value


def _timed(value: Value | None, window: Window) -> Value | None:
    if isinstance(value, str) and (after := re.fullmatch(r"t\+(\d+)", value)):
        return Moment(window.start_s + int(after[1]))
    return value
