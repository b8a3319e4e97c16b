"""The options of a task: one table of them, checked where they are given, merged, and completed with the defaults.

``check_options`` turns the user's values into exact values, or raises before anything is sent. Options of ``Task`` come
first, then those of ``enqueue``. If two options set the same value, the last one counts; ``process_at`` and
``process_in`` do, as in asynq.

An option is one entry of ``OPTIONS`` and one key of ``EnqueueOptions``. The clients, the scheduler and the command all
use this table. A test checks that ``OPTIONS`` and ``EnqueueOptions`` agree with each other and with the table in
docs/api/client.md.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, get_args

from fastq.common.clock import EPOCH
from fastq.common.durations import nanoseconds_of
from fastq.common.go_space import GO_SPACE
from fastq.common.states import TaskState

DEFAULT_TIMEOUT_S: Final = 1800
MAX_INT32: Final = 2**31 - 1
MAX_LANE_BYTES: Final = 200
MAX_LANE_SHOWN: Final = 50
MAX_PRIORITY: Final = 100
SECOND_NS: Final = 1_000_000_000

NO_OPTIONS: Final[Mapping[str, Any]] = {}
ELSEWHERE: Final[Mapping[str, str]] = {
    "countdown": "process_in",
    "delay": "process_in",
    "eta": "process_at",
    "expires": "deadline",
    "time_limit": "timeout",
    "job_timeout": "timeout",
    "retries": "max_retry",
    "result_expires": "retention",
    "result_ttl": "retention",
}
"""Other libraries' names for options, and the options' names here."""


Until: TypeAlias = Literal["done", "start", "end", "expiry"]
"""When a unique lock is released."""
IfThere: TypeAlias = Literal["keep", "replace", "postpone", "rerun"]
"""What to do if a task with the same key waits or runs."""


class EnqueueOptions(TypedDict, total=False):
    """The options of ``Task`` and ``enqueue``, for annotations: ``**options: Unpack[EnqueueOptions]``.

    Durations are ``timedelta`` or seconds, times have a time zone. ``None`` counts as not given.
    """

    queue: str | None
    task_id: str | None
    max_retry: int | None
    timeout: float | timedelta | None
    deadline: datetime | None
    unique: float | timedelta | None
    unique_key: str | None
    until: Until | None
    key: str | None
    if_there: IfThere | None
    latest: float | timedelta | None
    process_at: datetime | None
    process_in: float | timedelta | None
    retention: float | timedelta | None
    group: str | None
    lane: str | None
    priority: int | None
    headers: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of one task, complete.

    ``fields`` are the message's fields that options set. ``headers`` are the headers given to ``enqueue``. ``in_lane``
    says that the group is a lane, where ``priority`` counts. ``unique_ttl_ns`` is 0 for "not unique", ``unique_key`` is
    None if the payload is the key, ``process_at_ns`` is None for "now". ``if_there`` is "" for a task without a key,
    and ``latest_ns`` is 0 for no latest time.
    """

    fields: Mapping[str, Any]
    state: TaskState = TaskState.PENDING
    task_id: str = ""
    headers: Mapping[str, str] | None = None
    unique_ttl_ns: int = 0
    unique_key: str | None = None
    process_at_ns: int | None = None
    until: str = "done"
    if_there: str = ""
    latest_ns: int = 0
    in_lane: bool = False
    priority: int = 0

    @property
    def queue(self) -> str:
        """Return the name of the queue."""
        queue: str = self.fields["queue"]
        return queue


def check_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Check options by name and value; ``None`` counts as not given. The result is for ``complete``."""
    checked: dict[str, Any] = {}
    for name, value in options.items():
        spec = _SPECS.get(name)
        if spec is None:
            raise TypeError(_unknown(name))
        if value is not None:
            checked[spec.key or name] = spec.check(value, name)
    return checked


def complete(checked: Mapping[str, Any], now_ns: int) -> TaskOptions:
    """Fill in the defaults, and resolve ``process_in`` against ``now_ns``."""
    if not checked:
        return _DEFAULTS
    fields = dict(_DEFAULTS.fields)
    for name, value in checked.items():
        if name in _FIELDS:
            fields[_FIELDS[name]] = value
    if not checked.get("timeout"):
        fields["timeout"] = 0 if fields["deadline"] else DEFAULT_TIMEOUT_S
    unique_ttl_ns, unique_key = checked.get("unique", 0), checked.get("unique_key")
    if unique_key is not None and not unique_ttl_ns:
        raise ValueError(f"unique_key={unique_key!r} needs unique=<how long the lock is held at most>")
    if "until" in checked and not unique_ttl_ns:
        raise ValueError(f"until={checked['until']!r} needs unique=<how long the lock is held at most>")
    process_at_ns = _process_at_ns(checked.get("process"), now_ns)
    if_there = _if_there(checked)
    if "lane" in checked and "group" in checked:
        raise ValueError(
            f"lane={checked['lane']!r} and group={checked['group']!r} exclude each other: the tasks of a group are "
            "combined into one, those of a lane wait for their turn"
        )
    if "priority" in checked and "lane" not in checked:
        raise ValueError(f"priority={checked['priority']!r} needs lane=<the lane in which it starts before others>")
    return TaskOptions(
        fields,
        starting_state(process_at_ns, fields["group_key"]),
        checked["key"] if if_there else checked.get("task_id", ""),
        checked.get("headers"),
        unique_ttl_ns,
        unique_key,
        process_at_ns,
        checked.get("until", "done"),
        if_there,
        now_ns + checked["latest"] if "latest" in checked else 0,
        "lane" in checked,
        checked.get("priority", 0),
    )


def _if_there(checked: Mapping[str, Any]) -> str:
    """Return what to do if a task with the key waits or runs; "" without a key.

    Refuse options that do not fit the key.
    """
    key, if_there = checked.get("key"), checked.get("if_there")
    if key is None:
        if if_there is not None:
            raise ValueError(f"if_there={if_there!r} needs key=<text that names the task>")
        if "latest" in checked:
            raise ValueError('latest=… needs key=<text that names the task> and if_there="postpone"')
        return ""
    for other in ("task_id", "unique", "group", "lane"):
        if checked.get(other):
            why = "the key is the id" if other == "task_id" else f"a task with a key has no {other}"
            raise ValueError(f"key={key!r} does not go with {other}=…: {why}")
    if if_there == "postpone" and "process" not in checked:
        raise ValueError('if_there="postpone" needs process_in=<how long it waits for another one> or process_at=…')
    if "latest" in checked and if_there != "postpone":
        raise ValueError(f'latest=… goes with if_there="postpone", not {if_there or "keep"!r}')
    return if_there or "keep"


def starting_state(process_at_ns: int | None, group: str) -> TaskState:
    """Return the state in which a new task starts: a time in the future means scheduled, even with a group."""
    if process_at_ns is not None:
        return TaskState.SCHEDULED
    return TaskState.AGGREGATING if group else TaskState.PENDING


def _process_at_ns(process: tuple[str, int] | None, now_ns: int) -> int | None:
    if process is None:
        return None
    kind, ns = process
    at_ns = ns if kind == "at" else now_ns + ns
    return at_ns if at_ns > now_ns else None


def _unknown(name: str) -> str:
    close = [ELSEWHERE[name]] if name in ELSEWHERE else difflib.get_close_matches(name, OPTION_NAMES, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"options are {', '.join(OPTION_NAMES)}"
    return f"unknown option {name!r}; {hint}"


# The checks: each takes a value and the option's name, and returns the exact value.


def check_text(value: object, name: str) -> str:
    """Return ``value`` if it is text that can be sent; blank text and lone surrogates are refused."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}: {value!r}")
    if value.__class__ is not str:
        value = str.__str__(value)  # a plain str, as in the message: an enum would put its own name into a key
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name} must be valid Unicode text: {value!r}") from None
    if not value or (value[0] in GO_SPACE and not value.strip(GO_SPACE)):
        raise ValueError(f"{name} must contain one or more characters that are not blank: {value!r}")
    return value


def check_headers(value: object, name: str) -> dict[str, str]:
    """Return a copy of a mapping of text to text; empty keys and values are allowed, as in asynq."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping of str to str, not {type(value).__name__}: {value!r}")
    headers = dict(value)
    for key, content in headers.items():
        if not isinstance(key, str) or not isinstance(content, str):
            raise TypeError(f"{name} must map str to str: {key!r}: {content!r}")
        try:
            (key + content).encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name} must be valid Unicode text: {key!r}: {content!r}") from None
    return headers


def check_queue_name(value: object, name: str) -> str:
    """Return the name of a queue, if it can be part of a key."""
    queue = check_text(value, name)
    if "}" in queue:
        raise ValueError(f"{name} must not contain '}}', which would break the hash tag of its keys: {queue!r}")
    return queue


def check_lane(value: object, name: str) -> str:
    """Return the name of a lane, if it is valid; ``*`` and ``pool:*`` are names of rules for many lanes."""
    lane = check_text(value, name)
    if lane == "*" or lane.endswith(":*"):
        raise ValueError(f"{name} must not be '*' or end with ':*', which stand for many lanes: {lane!r}")
    if any(ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0 for letter in lane):
        raise ValueError(f"{name} must not contain control characters: {lane!r}")
    if (size := len(lane.encode())) > MAX_LANE_BYTES:
        raise ValueError(f"{name} must have at most {MAX_LANE_BYTES} bytes, not {size}: {lane[:MAX_LANE_SHOWN]!r}...")
    return lane


def _count(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}: {value!r}")
    if value > MAX_INT32:
        raise ValueError(f"{name} must be at most {MAX_INT32} (32 bits on the wire): {value!r}")
    return max(value, 0)


def _priority(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}: {value!r}")
    if not -MAX_PRIORITY <= value <= MAX_PRIORITY:
        raise ValueError(f"{name} must be from -{MAX_PRIORITY} to {MAX_PRIORITY}: {value!r}")
    return int(value)


def _timeout_s(value: object, name: str) -> int:
    ns = nanoseconds_of(value, name=name)
    if value and ns < SECOND_NS:
        raise ValueError(f"{name} must be 0 (none) or at least 1 second: {value!r}")
    return ns // SECOND_NS


def _lock_ns(value: object, name: str) -> int:
    ns = nanoseconds_of(value, name=name)
    if ns < SECOND_NS:
        raise ValueError(f"{name} must be at least 1 second: {value!r}")
    return ns


def _delay_ns(value: object, name: str) -> int:
    ns = nanoseconds_of(value, name=name)
    if ns < 0:
        raise ValueError(f"{name} must not be negative: {value!r}")
    return ns


def _seconds(value: object, name: str) -> int:
    return _delay_ns(value, name) // SECOND_NS


def _one_of(*words: str) -> Callable[[object, str], str]:
    """Return a check that accepts only these words."""

    def check(value: object, name: str) -> str:
        if not isinstance(value, str):
            raise TypeError(f"{name} must be one of {', '.join(words)}, not {type(value).__name__}: {value!r}")
        if value not in words:
            raise ValueError(f"{name} must be one of {', '.join(words)}: {value!r}")
        return str(value)

    return check


def _process_in(value: object, name: str) -> tuple[str, int]:
    return "in", _delay_ns(value, name)


def _process_at(value: object, name: str) -> tuple[str, int]:
    return "at", _unix_ns(value, name)


def _unix_s(value: object, name: str) -> int:
    return _unix_ns(value, name) // SECOND_NS


def _unix_ns(value: object, name: str) -> int:
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime with a time zone, not {type(value).__name__}: {value!r}")
    if value.utcoffset() is None:
        raise ValueError(
            f"{name} must have a time zone, for example datetime.now(UTC) or .replace(tzinfo=...): {value!r}"
        )
    return (value - EPOCH) // _MICROSECOND * 1000


_MICROSECOND = timedelta(microseconds=1)


class OptionKind(Enum):
    """The kind of an option's value, which decides how the command and the scheduler read and write it."""

    TEXT = auto()
    NUMBER = auto()
    DURATION = auto()
    TIME = auto()
    HEADERS = auto()


class OptionSpec(NamedTuple):
    """One option.

    ``check`` takes a value and the option's name, and returns the exact value or raises. ``help`` is the command's help
    text. ``go`` is asynq's name of the option, "" if it has none. ``field`` is the field of the message that takes the
    exact value, "" if the value needs further work; ``default`` is the field's default. ``key`` is the common name of
    options that set the same value, in the result of ``check_options``.
    """

    name: str
    kind: OptionKind
    check: Callable[[Any, str], Any]
    help: str
    go: str = ""
    field: str = ""
    default: Any = None
    key: str = ""


OPTIONS: Final = (
    OptionSpec(
        "queue", OptionKind.TEXT, check_queue_name, "the queue  [default: default]", "Queue", "queue", "default"
    ),
    OptionSpec("task_id", OptionKind.TEXT, check_text, "the task's id  [default: a random UUID]", "TaskID"),
    OptionSpec(
        "max_retry", OptionKind.NUMBER, _count, "how often to retry the task  [default: 25]", "MaxRetry", "retry", 25
    ),
    OptionSpec(
        "timeout",
        OptionKind.DURATION,
        _timeout_s,
        "how long an attempt may take  [default: 30m, none with a deadline]",
        "Timeout",
        "timeout",
        DEFAULT_TIMEOUT_S,
    ),
    OptionSpec("deadline", OptionKind.TIME, _unix_s, "when all attempts must be over", "Deadline", "deadline", 0),
    OptionSpec(
        "unique",
        OptionKind.DURATION,
        _lock_ns,
        "refuse a second task of this type and payload until this one is done, at most this long",
        "Unique",
    ),
    OptionSpec("unique_key", OptionKind.TEXT, check_text, "text that --unique compares instead of the payload"),
    OptionSpec(
        "until",
        OptionKind.TEXT,
        _one_of(*get_args(Until)),
        "when --unique ends: done, start (a server takes it), end (the archive, too), expiry  [default: done]",
    ),
    OptionSpec("key", OptionKind.TEXT, check_text, "text that names the task: of those with a key only one waits"),
    OptionSpec(
        "if_there",
        OptionKind.TEXT,
        _one_of(*get_args(IfThere)),
        "what to do if a task with the key waits or runs: keep, replace, postpone, rerun  [default: keep]",
    ),
    OptionSpec(
        "latest", OptionKind.DURATION, _delay_ns, "how long after the first one a postponed task runs at the latest"
    ),
    OptionSpec("process_at", OptionKind.TIME, _process_at, "the earliest time to run it", "ProcessAt", key="process"),
    OptionSpec(
        "process_in", OptionKind.DURATION, _process_in, "how long to wait before running it", "ProcessIn", key="process"
    ),
    OptionSpec(
        "retention",
        OptionKind.DURATION,
        _seconds,
        "how long to keep the task after it has completed",
        "Retention",
        "retention",
        0,
    ),
    OptionSpec(
        "group",
        OptionKind.TEXT,
        check_text,
        "the group in which it waits to be combined with others into one task",
        "Group",
        "group_key",
        "",
    ),
    OptionSpec(
        "lane",
        OptionKind.TEXT,
        check_lane,
        "the lane in which it waits for its turn, such as openai:acme, which may have limits",
        field="group_key",
        default="",
    ),
    OptionSpec(
        "priority",
        OptionKind.NUMBER,
        _priority,
        "how soon it starts in its lane, from -100 to 100: the highest first  [default: 0]",
    ),
    OptionSpec("headers", OptionKind.HEADERS, check_headers, "a header; may be repeated", "Header"),
)
OPTION_NAMES: Final = tuple(spec.name for spec in OPTIONS)

_SPECS: Final = {spec.name: spec for spec in OPTIONS}
_FIELDS: Final = {spec.name: spec.field for spec in OPTIONS if spec.field}
_DEFAULTS: Final = TaskOptions({spec.field: spec.default for spec in OPTIONS if spec.field})
