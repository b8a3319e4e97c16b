"""``Limit``: how many tasks of a lane may run and start, as text for people and as the rule that servers read.

A rule is ``concurrency:interval_us:burst:weight``, whole numbers, 0 for no limit. ``:strict``, ``:lifo`` or
``:deadline`` follows for an order, then ``:paused`` while the lane is paused. A rule without a limit, which only
pauses, has the weight 0. The rate follows GCRA: one start per interval, and up to ``burst`` starts at once after a
rest.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self, TypeAlias, TypedDict, get_args

from fastq.common.durations import parse_duration

MAX_COUNT: Final = 1_000_000
MAX_WEIGHT: Final = 1_000
MAX_BURST_US: Final = 366 * 86_400_000_000
"""A year: enough for any burst, and still exact when a script adds it to a time in microseconds."""

EACH_LANE: Final = "*"
"""The name for all lanes that have no limit of their own."""
WHOLE_QUEUE: Final = ""
"""The name for the queue as a whole."""

Order: TypeAlias = Literal["strict", "lifo", "deadline"]
"""The order in which a lane starts its tasks, if not in the order of their enqueueing."""
_ORDERS: Final = get_args(Order)
_ORDER_NAMES: Final = f"{', '.join(_ORDERS[:-1])} or {_ORDERS[-1]}"

_SECOND_US: Final = 1_000_000
_UNITS: Final = {"s": _SECOND_US, "m": 60 * _SECOND_US, "h": 3_600 * _SECOND_US, "d": 86_400 * _SECOND_US}
_WORDS: Final = {
    **dict.fromkeys(("sec", "second"), "s"),
    **dict.fromkeys(("min", "minute"), "m"),
    **dict.fromkeys(("hour",), "h"),
    **dict.fromkeys(("day",), "d"),
}
_RATE: Final = re.compile(r"(\d{1,9}) ?/ ?(\S+)", re.ASCII)
_DAYS: Final = re.compile(r"(\d{1,4})d", re.ASCII)
_WORD: Final = re.compile(r"(burst|weight) ?(\d{1,9})", re.ASCII)
_NUMBERS: Final = ":".join([r"(\d{1,15})"] * 4)
_RULE: Final = re.compile(rf"{_NUMBERS}(?::({'|'.join(_ORDERS)}))?(:paused)?", re.ASCII)
_NO_LIMIT: Final = "no limit"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a lane: at most ``concurrency`` of its tasks run at once, and they start at most at the ``rate``.

    ``rate`` is a number of tasks in a time: "5/s", "500/m", "1000/h", "10/30s". The rate is even: at "5/s", one task
    starts each fifth of a second. After a rest, up to ``burst`` tasks start at once. While other lanes wait, too, a
    lane gets ``weight`` turns for each turn of a lane with weight 1. None is no limit.

    With ``order="strict"`` and ``concurrency=1``, the tasks of a lane are a sequence: while a task waits for its retry,
    later tasks wait, too. With ``order="lifo"``, the newest task starts first; with ``order="deadline"``, the task with
    the earliest deadline. Bad values raise ``ValueError`` or ``TypeError``.
    """

    concurrency: int | None = None
    rate: str | None = None
    burst: int = 1
    weight: int = 1
    order: Order | None = None

    def __post_init__(self) -> None:
        if self.concurrency == 0 and not isinstance(self.concurrency, bool):
            raise ValueError("concurrency must be at least 1, not 0; pause the lane instead")
        if self.concurrency is not None:
            _check_count(self.concurrency, "concurrency", MAX_COUNT)
        _check_count(self.burst, "burst", MAX_COUNT)
        _check_count(self.weight, "weight", MAX_WEIGHT)
        _check_order(self.order, self.concurrency)
        if self.rate is None:
            if self.burst != 1:
                raise ValueError(f"burst={self.burst} goes with a rate only")
            return
        interval_us = _interval_us(self.rate)
        if self.burst * interval_us > MAX_BURST_US:
            raise ValueError(f"rate {self.rate!r} with burst {self.burst} would take more than a year to be used up")
        object.__setattr__(self, "rate", _rate_text(interval_us))

    @property
    def interval_us(self) -> int:
        """Return the microseconds between two starts, 0 without a rate."""
        return 0 if self.rate is None else _interval_us(self.rate)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a limit such as "2", "5/s", "2, 5/s, burst 10, weight 3", "1, strict" or "no limit".

        The ``ValueError`` for other text names the part that cannot be read.
        """
        if not isinstance(text, str):
            raise TypeError(f"a limit is text such as '2, 5/s', not {text!r}")
        given: dict[str, int | str] = {}
        for part in () if text.strip().lower() == _NO_LIMIT else text.split(","):
            name, value = _read_part(part.strip().lower(), text)
            if name in given:
                raise ValueError(f"{text!r} has two values for {name}")
            given[name] = value
        return cls(**given)  # type: ignore[arg-type]  # each part gives its own type

    def __str__(self) -> str:
        """Return the text that ``parse`` reads."""
        parts = [
            "" if self.concurrency is None else str(self.concurrency),
            self.rate or "",
            f"burst {self.burst}" if self.burst > 1 else "",
            f"weight {self.weight}" if self.weight > 1 else "",
            self.order or "",
        ]
        return ", ".join(part for part in parts if part) or _NO_LIMIT


class LimitParts(TypedDict, total=False):
    """The parts of a ``Limit``, for annotations: ``**limit: Unpack[LimitParts]``."""

    concurrency: int | None
    rate: str | None
    burst: int
    weight: int
    order: Order | None


class Rule(NamedTuple):
    """The rule under one name in the hash of limits; ``limit`` is None if the rule only pauses."""

    limit: Limit | None
    is_paused: bool


def write_rule(limit: Limit) -> str:
    """Return the rule of a limit."""
    order = f":{limit.order}" if limit.order else ""
    return f"{limit.concurrency or 0}:{limit.interval_us}:{limit.burst}:{limit.weight}{order}"


def read_rule(text: str) -> Rule | None:
    """Read a rule; return None for text that fastq never writes."""
    found = _RULE.fullmatch(text)
    if found is None:
        return None
    concurrency, interval_us, burst, weight = (int(number) for number in found.groups()[:4])
    order: Order | None = found[5]  # type: ignore[assignment]  # one of these, as the pattern says
    is_paused = found[6] is not None
    if not weight:
        return Rule(None, is_paused)
    try:
        rate = _rate_text(interval_us) if interval_us else None
        return Rule(Limit(concurrency or None, rate, max(burst, 1) if rate else 1, weight, order), is_paused)
    except ValueError:
        return None


def check_limited(name: object, limit: object = None) -> str:
    """Return the field under which a limit is stored: the name of a lane, "*", "pool:*", or "" if the name is None.

    None means the queue as a whole. A limit must be a ``Limit`` or None, and have only parts that go with this name.
    """
    if limit is not None and not isinstance(limit, Limit):
        hint = f"; Limit.parse({limit!r}) reads it" if isinstance(limit, str) else ""
        raise TypeError(f"limit must be a Limit or None, not {limit!r}{hint}")
    if name is None:
        if limit is not None and limit != Limit(limit.concurrency):
            raise ValueError(f"a queue as a whole has a concurrency only, not {str(limit)!r}; name a lane, or '*'")
        return WHOLE_QUEUE
    name = check_shown(name)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"lane must be valid Unicode text: {name!r}") from None
    if "*" not in name or name == EACH_LANE:
        return name
    pool = name.removesuffix(":*")
    if not pool.strip() or "*" in pool or ":" in pool or pool == name:
        raise ValueError(f"{name!r} is neither a lane, nor '*' for each lane, nor a pool such as 'openai:*'")
    if limit is not None and limit.weight != 1:
        raise ValueError(f"weight is for lanes; {name!r} is a pool, which takes no turns")
    if limit is not None and limit.order is not None:
        raise ValueError(f"order={limit.order!r} is for lanes; {name!r} is a pool, whose lanes take turns")
    return name


def check_shown(name: object) -> str:
    """Return the field of the lane with this name, "" for None; a group of another producer may have any name."""
    if name is None:
        return WHOLE_QUEUE
    if not isinstance(name, str):
        raise TypeError(f"lane must be a str, not {type(name).__name__}: {name!r}")
    if not name.strip():
        raise ValueError(f"lane must contain one or more characters that are not blank: {name!r}")
    return name


def pool_of(lane: str) -> str:
    """Return the name of a lane's pool, such as ``openai:*`` for ``openai:acme``; "" if the lane has none."""
    pool, colon, _ = lane.partition(":")
    return f"{pool}:*" if colon and pool else ""


def _check_count(value: object, name: str, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}: {value!r}")
    if not 1 <= value <= most:
        raise ValueError(f"{name} must be from 1 to {most:,}, not {value}")


def _check_order(order: object, concurrency: int | None) -> None:
    if order is None:
        return
    if not isinstance(order, str):
        raise TypeError(f"order must be {_ORDER_NAMES}, not {type(order).__name__}: {order!r}")
    if order not in _ORDERS:
        raise ValueError(f"order must be {_ORDER_NAMES}, not {order!r}")
    if order == "strict" and concurrency != 1:
        raise ValueError(f"order='strict' needs concurrency=1, one task after the other, not {concurrency}")


def _read_part(part: str, text: str) -> tuple[str, int | str]:
    if part.isascii() and part.isdigit():
        return "concurrency", int(part)
    if word := _WORD.fullmatch(part):
        return word[1], int(word[2])
    if part in _ORDERS:
        return "order", part
    if "/" in part:
        return "rate", part
    raise ValueError(
        f"{part!r} in {text!r} is no part of a limit, which is such as '2, 5/s, burst 10, weight 3' or '1, strict'"
    )


def _interval_us(rate: object) -> int:
    """Return the microseconds from one start to the next, rounded up, so that the rate is never exceeded."""
    if not isinstance(rate, str):
        raise TypeError(f"rate must be a text such as '5/s', not {rate!r}")
    found = _RATE.fullmatch(rate.strip().lower())
    if found is None:
        raise ValueError(f"rate {rate!r} is not a number of tasks in a time, such as '5/s', '500/m' or '1/10s'")
    count, us = int(found[1]), _time_us(found[2], rate)
    if not count or us <= 0:
        raise ValueError(f"rate {rate!r} lets nothing start; pause the lane instead")
    interval_us = -(-us // count)
    if count > us:
        raise ValueError(f"rate {rate!r} is more than a million tasks a second")
    return interval_us


def _time_us(text: str, rate: str) -> int:
    unit = _WORDS.get(text, text)
    if unit in _UNITS:
        return _UNITS[unit]
    if days := _DAYS.fullmatch(text):
        return int(days[1]) * _UNITS["d"]
    try:
        return parse_duration(text) // 1_000
    except ValueError as error:
        raise ValueError(f"rate {rate!r} has an {error}") from None


def _rate_text(interval_us: int) -> str:
    """Return the rate of an interval, in the smallest unit in which it is a whole number."""
    for unit, us in _UNITS.items():
        count = round(us / interval_us)
        if 1 <= count <= MAX_COUNT and -(-us // count) == interval_us:
            return f"{count}/{unit}"
    for unit, us in reversed(_UNITS.items()):
        if interval_us % us == 0:
            return f"1/{interval_us // us}{unit}"
    return f"1/{interval_us}us"
