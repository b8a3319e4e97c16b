"""Every option, right and wrong: what it becomes on the wire, and what is said, before anything is sent."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from fastq._codec import FIELDS
from fastq.cli.task_enqueue import enqueue
from fastq.common.states import TaskState
from fastq.options import (
    NO_OPTIONS,
    OPTION_NAMES,
    OPTIONS,
    EnqueueOptions,
    IfThere,
    OptionKind,
    TaskOptions,
    Until,
    check_options,
    check_text,
    complete,
)
from tests.bad_input import BAD_OPTIONS

NOW_NS = 1_700_000_000_123_456_789
SECOND_NS = 1_000_000_000
GO_NAMES = (
    *("MaxRetry", "Queue", "Timeout", "Deadline", "Unique", "ProcessAt"),
    *("ProcessIn", "TaskID", "Retention", "Group", "Header"),
)


def completed(**options: Any) -> TaskOptions:
    return complete(check_options(options), NOW_NS)


def value_of(options: TaskOptions, name: str) -> object:
    return options.fields[name] if name in options.fields else getattr(options, name)


class OldQueue(str, Enum):  # noqa: UP042 - what is tested is that it need not be one
    """A name as programs from before ``StrEnum`` have it."""

    BULK = "bulk"


class Queue(StrEnum):
    BULK = "bulk"


class Tries(IntEnum):
    FEW = 3


def test_no_options_are_asynqs_defaults() -> None:
    fields = {"queue": "default", "retry": 25, "timeout": 1800, "deadline": 0, "retention": 0, "group_key": ""}
    assert complete(NO_OPTIONS, NOW_NS) == TaskOptions(
        fields,
        TaskState.PENDING,
        task_id="",
        headers=None,
        unique_ttl_ns=0,
        unique_key=None,
        process_at_ns=None,
    )


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"queue": "Low, 低}"[:-1]}, "queue", "Low, 低"),
        ({"queue": " padded "}, "queue", " padded "),
        ({"queue": "\x1c"}, "queue", "\x1c"),  # blank to str.strip, not to Go
        ({"task_id": "a}b"}, "task_id", "a}b"),
        ({"max_retry": 0}, "retry", 0),
        ({"max_retry": -7}, "retry", 0),
        ({"max_retry": 2**31 - 1}, "retry", 2**31 - 1),
        ({"max_retry": Tries.FEW}, "retry", 3),
        ({"timeout": 1}, "timeout", 1),
        ({"timeout": 1.999999999}, "timeout", 1),
        ({"timeout": timedelta(days=1)}, "timeout", 86_400),
        ({"timeout": 9_223_372_036}, "timeout", 9_223_372_036),
        ({"timeout": 0}, "timeout", 1800),
        ({"timeout": timedelta(0)}, "timeout", 1800),
        ({"deadline": datetime(2030, 1, 1, tzinfo=UTC)}, "deadline", 1_893_456_000),
        ({"deadline": datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))}, "deadline", 1_893_456_000),
        ({"deadline": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)}, "deadline", -1),  # floored
        ({"deadline": datetime.max.replace(tzinfo=UTC)}, "deadline", 253_402_300_799),
        ({"unique": 1}, "unique_ttl_ns", SECOND_NS),
        ({"unique": timedelta(seconds=1, microseconds=500_000)}, "unique_ttl_ns", 1_500_000_000),
        ({"process_in": 0.25}, "process_at_ns", NOW_NS + 250_000_000),
        ({"process_in": 0}, "process_at_ns", None),
        ({"process_at": datetime(2030, 1, 1, 0, 0, 0, 1, UTC)}, "process_at_ns", 1_893_456_000_000_001_000),
        ({"process_at": datetime(2000, 1, 1, tzinfo=UTC)}, "process_at_ns", None),
        ({"process_at": datetime.fromtimestamp(NOW_NS // 1000 / 1e6, UTC)}, "process_at_ns", None),
        ({"retention": 90}, "retention", 90),
        ({"retention": 2.9}, "retention", 2),
        ({"group": "g:1"}, "group_key", "g:1"),
        ({"lane": "openai:acme"}, "group_key", "openai:acme"),
        ({"lane": "a:*b"}, "group_key", "a:*b"),
        ({"lane": "é" * 100}, "group_key", "é" * 100),
    ],
)
def test_an_option_is_taken_as_asynq_takes_it(options: dict[str, Any], field: str, value: object) -> None:
    result = value_of(completed(**options), field)
    assert result == value
    assert type(result) is not bool


def test_a_deadline_alone_leaves_no_timeout() -> None:
    assert completed(deadline=datetime(2030, 1, 1, tzinfo=UTC)).fields["timeout"] == 0


def test_timeout_and_deadline_stand_side_by_side() -> None:
    both = completed(deadline=datetime(2030, 1, 1, tzinfo=UTC), timeout=20)
    assert (both.fields["timeout"], both.fields["deadline"]) == (20, 1_893_456_000)


def test_the_deadline_of_the_epoch_counts_as_none() -> None:
    epoch = completed(deadline=datetime(1970, 1, 1, tzinfo=UTC))
    assert (epoch.fields["timeout"], epoch.fields["deadline"]) == (1800, 0)


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_none_counts_as_not_given(name: str) -> None:
    assert completed(**{name: None}) == complete(NO_OPTIONS, NOW_NS)


def test_of_process_at_and_process_in_the_last_decides() -> None:
    past, future = datetime(2000, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
    assert completed(process_in=3600, process_at=past).process_at_ns is None
    assert completed(process_at=past, process_in=3600).process_at_ns == NOW_NS + 3600 * SECOND_NS
    task, call = check_options({"process_at": future}), check_options({"process_in": 0})
    assert complete({**task, **call}, NOW_NS).process_at_ns is None


def test_none_does_not_take_an_option_of_the_task_back() -> None:
    assert complete({**check_options({"queue": "low"}), **check_options({"queue": None})}, NOW_NS).queue == "low"


@pytest.mark.parametrize("name", ["queue", "task_id", "group", "lane", "unique_key"])
@pytest.mark.parametrize("value", [OldQueue.BULK, Queue.BULK])
def test_an_enum_of_names_is_its_value(name: str, value: str) -> None:
    options = {name: value, **({"unique": 60} if name == "unique_key" else {})}
    found = value_of(completed(**options), {"group": "group_key", "lane": "group_key"}.get(name, name))
    assert f"{found}" == "bulk"
    assert type(found) is str


def test_headers_are_copied() -> None:
    given = {"a": "1"}
    checked = check_options({"headers": given})
    given["b"] = "2"
    assert checked["headers"] == {"a": "1"}


def test_headers_may_be_empty_text() -> None:
    assert check_options({"headers": {"": ""}})["headers"] == {"": ""}


@pytest.mark.parametrize(("name", "value", "kind", "message"), BAD_OPTIONS)
def test_a_bad_option_is_refused_by_name(name: str, value: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"^{message}$") as caught:
        check_options({name: value})
    assert type(caught.value) is kind


def test_the_first_bad_option_is_reported() -> None:
    with pytest.raises(ValueError, match=r"^queue must contain"):
        check_options({"max_retry": 1, "queue": " ", "group": " "})


def test_a_unique_key_needs_a_time() -> None:
    with pytest.raises(ValueError, match=r"^unique_key='k' needs unique=<how long the lock is held at most>$"):
        completed(unique_key="k")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"if_there": "rerun"}, "if_there='rerun' needs key="),
        ({"latest": 5}, 'latest=… needs key=<text that names the task> and if_there="postpone"'),
        ({"key": "k", "task_id": "i"}, "key='k' does not go with task_id=…: the key is the id"),
        ({"key": "k", "unique": 60}, "key='k' does not go with unique=…: a task with a key has no unique"),
        ({"key": "k", "group": "g"}, "key='k' does not go with group=…: a task with a key has no group"),
        ({"key": "k", "if_there": "postpone"}, 'if_there="postpone" needs process_in='),
        ({"key": "k", "if_there": "rerun", "latest": 9}, "latest=… goes with if_there=\"postpone\", not 'rerun'"),
        ({"key": "k", "latest": 9}, "latest=… goes with if_there=\"postpone\", not 'keep'"),
        ({"until": "start"}, "until='start' needs unique="),
        ({"unique": 60, "until": "never"}, "until must be one of done, start, end, expiry: 'never'"),
        ({"key": "k", "if_there": "drop"}, "if_there must be one of keep, replace, postpone, rerun: 'drop'"),
        ({"key": " "}, "key must contain one or more characters that are not blank"),
        ({"key": "k", "if_there": "postpone", "process_in": 1, "latest": -1}, "latest must not be negative: -1"),
    ],
)
def test_what_does_not_go_together_with_a_key_or_a_lock(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        completed(**options)


def test_a_key_is_the_id_and_what_is_there_is_kept_by_default() -> None:
    found = completed(key="sync:42")
    assert (found.task_id, found.if_there, found.latest_ns) == ("sync:42", "keep", 0)
    assert completed().if_there == ""


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_retries", "did you mean 'max_retry'?"),
        ("que", "did you mean 'queue'?"),
        ("countdown", "did you mean 'process_in'?"),
        ("expires", "did you mean 'deadline'?"),
        ("Queue", "did you mean 'queue'?"),
        ("process_after", "did you mean 'process_at'?"),
        (
            "xyz",
            "options are queue, task_id, max_retry, timeout, deadline, unique, unique_key, until, key, if_there,",
        ),
    ],
)
def test_an_unknown_option_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"unknown option {name!r}; {hint}")):
        check_options({name: 1})


def test_a_lane_is_no_group() -> None:
    with pytest.raises(ValueError, match=r"^lane='a' and group='b' exclude each other: "):
        completed(lane="a", group="b")
    with pytest.raises(ValueError, match=r"^lane='a' and group='b' exclude each other: "):
        complete({**check_options({"group": "b"}), **check_options({"lane": "a"})}, NOW_NS)


def test_a_priority_is_one_in_a_lane() -> None:
    assert [completed(lane="a", priority=level).priority for level in (-100, 0, 100)] == [-100, 0, 100]
    assert completed(lane="a").priority == 0
    with pytest.raises(ValueError, match=r"^priority=5 needs lane=<the lane in which it starts before others>$"):
        completed(priority=5)


def test_a_task_with_a_lane_says_so() -> None:
    assert completed(lane="a").in_lane
    assert not completed(group="a").in_lane
    assert completed(lane="a").state is TaskState.AGGREGATING


def test_an_unknown_option_is_refused_even_if_it_is_none() -> None:
    with pytest.raises(TypeError, match="unknown option 'tries'"):
        check_options({"tries": None})


@pytest.mark.parametrize(
    "blank", ["\t\n\v\f\r ", "\x85", "\xa0", "\u1680", "\u2000\u200a", "\u2028", "\u2029\u202f\u205f\u3000"]
)
def test_what_go_calls_blank_is_blank(blank: str) -> None:
    with pytest.raises(ValueError, match=r"^name must contain one or more characters that are not blank: "):
        check_text(blank, "name")


@pytest.mark.parametrize("text", ["\x1c", "\x1d", "\x1e", "\x1f", "\u200b", "\ufeff", "\x00", "a ", " a"])
def test_what_go_calls_text_is_text(text: str) -> None:
    assert check_text(text, "name") == text


def test_infinity_and_nan_have_no_place_in_any_duration() -> None:
    for name in ("timeout", "unique", "process_in", "retention"):
        for value in (math.nan, math.inf, -math.inf):
            with pytest.raises(ValueError, match=f"^{name} must be finite, not {value!r}$"):
                check_options({name: value})


@pytest.mark.parametrize("name", ["process_in", "retention"])
@pytest.mark.parametrize("value", [-5, -0.5, timedelta(seconds=-1)])
def test_a_negative_duration_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name} must not be negative: {re.escape(repr(value))}$"):
        check_options({name: value})


def test_a_date_is_not_a_time() -> None:
    with pytest.raises(TypeError, match=r"^deadline must be a datetime with a time zone, not date: "):
        check_options({"deadline": date(2030, 1, 1)})


PAGE = Path(__file__).parent.parent / "docs" / "api" / "client.md"
TYPES: dict[OptionKind, object] = {
    OptionKind.TEXT: str | None,
    OptionKind.NUMBER: int | None,
    OptionKind.DURATION: float | timedelta | None,
    OptionKind.TIME: datetime | None,
    OptionKind.HEADERS: Mapping[str, str] | None,
}


def test_annotations_page_command_and_messages_have_the_options_of_the_table() -> None:
    words = {"until": Until | None, "if_there": IfThere | None}
    assert get_type_hints(EnqueueOptions) == {spec.name: TYPES[spec.kind] for spec in OPTIONS} | words
    rows = dict(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*\| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE))
    defaults = {name: default for names, default in rows.items() for name in re.findall(r"\w+", names)}
    assert defaults.keys() == set(OPTION_NAMES)
    assert {name for name in OPTION_NAMES if name not in {option.name for option in enqueue.params}} == set()
    assert sorted(spec.go for spec in OPTIONS if spec.go) == sorted(GO_NAMES)
    for spec in OPTIONS:
        assert not spec.field or spec.field in FIELDS
        if spec.default:
            assert f"{spec.default}" in defaults[spec.name]
