"""Seeded cron specs, good and bad, read by fastq and by the parser that asynq uses."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from fastq.cron import CronSpecError, parse
from tests.interop.peer import GoPeer

pytestmark = pytest.mark.interop

COUNT = 400
TIMES = 4
# Zones whose clocks change by whole hours: robfig is wrong about the others (tests/cron/test_schedule.py).
ZONES = ("UTC", "America/New_York", "Europe/Paris", "America/Sao_Paulo", "Asia/Kolkata", "Africa/Casablanca")
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
NAMES = ((), (), (), ("jan", "Feb", "DEC", "sept"), ("sun", "Mon", "SAT", "monday"))
NOISE = ("L", "15W", "5#2", "7", "-1", "1-", "*5", "+5", "007", "1_0", "a", "*/0", "5/", "/5", "1/2/3", "1-2-3", "60")
WHOLE = (
    "",
    " ",
    "@daily",
    "@Daily",
    "@hourly ",
    "@every 90s",
    "@every 1h30m",
    "@every 0.1s",
    "@every",
    "@every  1m",
    "TZ=Asia/Tokyo @daily",
    "TZ=Asia/Tokyo  30 6 * * *\t",
    "CRON_TZ=Nowhere 0 6 * * *",
    "CRON_TZ= 0 6 * * *",
    "* * * * * *",
)


def number(rng: random.Random, field: int) -> str:
    low, high = RANGES[field]
    if NAMES[field] and rng.random() < 0.3:
        return rng.choice(NAMES[field])
    return str(rng.randint(low, high) if rng.random() < 0.97 else rng.randint(low - 1, high + 2))


def item(rng: random.Random, field: int) -> str:
    kind = rng.random()
    if kind < 0.02:
        return rng.choice(NOISE)
    if kind < 0.25:
        text = rng.choice(("*", "?", "*-3"))
    elif kind < 0.6:
        text = number(rng, field)
    else:
        text = "-".join(sorted((number(rng, field), number(rng, field)), key=lambda word: (len(word), word)))
    return f"{text}/{rng.randint(1, 40)}" if rng.random() < 0.25 else text


def spec(rng: random.Random) -> str:
    if rng.random() < 0.05:
        return rng.choice(WHOLE)
    fields = []
    for field in range(5):
        items = [item(rng, field) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        fields.append("*" if rng.random() < 0.35 else ",".join(items) + "," * (rng.random() < 0.03))
    return rng.choice((" ", " ", "\t", "  ", "\u2003")).join(fields)


def outcome(text: str, zone: str, start: datetime) -> list[str] | None:
    """Return the next times, None where the spec is refused."""
    try:
        schedule = parse(text, zone)
    except CronSpecError:
        return None
    times: list[str] = []
    moment = start
    for _ in range(TIMES):
        due = schedule.next(moment)
        if due is None:
            return [*times, "never"]
        times.append(due.astimezone(start.tzinfo).isoformat())
        moment = due
    return times


@pytest.mark.parametrize("zone", ZONES)
def test_specs_are_read_as_go_reads_them(go: GoPeer, zone: str) -> None:
    rng = random.Random(f"cron {zone}")
    specs = [spec(rng) for _ in range(COUNT)]
    # Any second of three years with changes of the clocks.
    start = datetime.fromtimestamp(rng.randrange(1_514_764_800, 1_609_459_200), UTC)
    answers: list[dict[str, Any]] = go.request(
        "cron_next", specs=specs, location=zone, **{"from": int(start.timestamp()), "count": TIMES}, timeout=120
    )
    differences = []
    for text, answer in zip(specs, answers, strict=True):
        theirs = None if answer["error"] else [in_utc(time) for time in answer["next"]]
        ours = outcome(text, zone, start)
        if ours != theirs:
            differences.append((text, answer["error"], ours, theirs))
    assert differences == []
    refused = sum(bool(answer["error"]) for answer in answers)
    assert COUNT // 20 < refused < COUNT * 19 // 20


def in_utc(time: str) -> str:
    return time if time == "never" else datetime.fromisoformat(time).astimezone(UTC).isoformat()
