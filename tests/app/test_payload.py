"""Arguments as JSON: what goes there and back, what is refused at registration, when sent, and when it comes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.app.context import Context
from fastq.app.payload import Payload
from fastq.errors import PayloadError

pydantic = pytest.importorskip("pydantic")

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Color(Enum):
    RED = "red"


class Size(msgspec.Struct):
    width: int
    height: int


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict, total=False):
    quality: int


@dataclass
class Visit:
    at: datetime
    notes: list[str]


class Line(pydantic.BaseModel):  # type: ignore[misc, name-defined]  # it is imported where it is there
    sku: str
    count: int = pydantic.Field(1, alias="n")


def payload_of(function: Callable[..., Any], *, is_strict: bool = False) -> Payload:
    return Payload("t", function, is_strict=is_strict)


def sent(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return orjson.loads(payload_of(function).encode(args, kwargs))


# There and back


def everything(
    number: int,
    *,
    real: float = 0.0,
    flag: bool = False,
    text: str | None = None,
    raw: bytes = b"",
    price: Decimal = Decimal(0),
    key: UUID | None = None,
    when: datetime = NOON,
    day: date | None = None,
    at: time | None = None,
    span: timedelta | None = None,
    color: Color = Color.RED,
    speed: Literal["slow", "fast"] = "slow",
    size: Size | None = None,
    point: Point | None = None,
    options: Options | None = None,
    visit: Visit | None = None,
    lines: list[Line] = [],  # noqa: B006 - as users write it
    tags: set[str] = frozenset(),  # type: ignore[assignment]
    counts: dict[str, int] = {},  # noqa: B006
    pair: tuple[int, str] = (0, ""),
    anything: Any = None,
) -> None: ...


VALUES: dict[str, tuple[object, object]] = {
    "number": (7, 7),
    "real": (1.5, 1.5),
    "flag": (True, True),
    "text": ("é", "é"),
    "raw": (b"\x00\xff?", "AP8/"),
    "price": (Decimal("1.20"), "1.20"),
    "key": (UUID(int=7), str(UUID(int=7))),
    "when": (NOON, "2026-11-22T12:00:00Z"),
    "day": (date(2026, 11, 22), "2026-11-22"),
    "at": (time(12, 30), "12:30:00"),
    "span": (timedelta(seconds=90), "PT90S"),
    "color": (Color.RED, "red"),
    "speed": ("fast", "fast"),
    "size": (Size(4, 3), {"width": 4, "height": 3}),
    "point": (Point(1, 2), [1, 2]),
    "options": ({"quality": 9}, {"quality": 9}),
    "visit": (Visit(NOON, ["a"]), {"at": "2026-11-22T12:00:00Z", "notes": ["a"]}),
    "lines": ([Line(sku="a", n=2)], [{"sku": "a", "n": 2}]),
    "tags": ({"a"}, ["a"]),
    "counts": ({"a": 1}, {"a": 1}),
    "pair": ((1, "b"), [1, "b"]),
    "anything": ([{"a": None}], [{"a": None}]),
}


@pytest.mark.parametrize("name", VALUES)
def test_each_kind_of_value_travels_and_comes_back(name: str) -> None:
    value, expected = VALUES[name]
    arguments = {"number": 7, name: value}
    payload = payload_of(everything)
    data = payload.encode((), arguments)
    assert orjson.loads(data)[name] == expected
    assert payload.decode(data)[name] == value


@given(st.integers(-(2**63), 2**64 - 1), st.text(), st.floats(allow_nan=False, allow_infinity=False), st.binary())
def test_plain_values_come_back_as_they_were(number: int, text: str, real: float, raw: bytes) -> None:
    payload = payload_of(everything)
    arguments = {"number": number, "text": text, "real": real, "raw": raw}
    decoded = payload.decode(payload.encode((), arguments))
    assert {name: decoded[name] for name in arguments} == arguments


def resize(id: int, width: int = 640, *, tags: list[str] | None = None) -> None: ...


def test_what_is_not_given_is_not_sent() -> None:
    assert sent(resize, 7) == {"id": 7}
    assert sent(resize, 7, width=640) == {"id": 7, "width": 640}


def test_the_same_arguments_make_the_same_bytes() -> None:
    payload = payload_of(resize)
    forms = [((7, 8), {}), ((7,), {"width": 8}), ((), {"width": 8, "id": 7})]
    assert {payload.encode(args, kwargs) for args, kwargs in forms} == {b'{"id":7,"width":8}'}


def test_a_default_is_the_function_s_own() -> None:
    shared: list[int] = []

    def collect(items: list[int] = shared) -> None: ...

    assert payload_of(collect).decode(b"{}")["items"] is shared


def test_no_payload_is_no_argument() -> None:
    def nothing(a: int = 1) -> None: ...

    assert payload_of(nothing).decode(b"") == {"a": 1}
    assert payload_of(nothing).encode((), {}) == b"{}"


def test_a_parameter_without_annotation_takes_any_json() -> None:
    def loose(a, b=None):  # type: ignore[no-untyped-def]
        ...

    assert payload_of(loose).decode(b'{"a":[1,{"x":null}]}') == {"a": [1, {"x": None}], "b": None}


def test_the_context_is_no_argument() -> None:
    def handler(ctx: Context[str], id: int) -> None: ...

    payload = payload_of(handler)
    assert (payload.takes_context, payload.env) == (True, str)
    assert payload.decode(payload.encode((7,), {})) == {"id": 7}


# Wrong calls

CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, "missing a required argument: 'id'"),
    ((1, 2, 3), {}, "too many positional arguments"),
    ((1,), {"id": 2}, "multiple values for argument 'id'"),
    ((1,), {"widht": 2}, "got an unexpected keyword argument 'widht'"),
    (("7",), {}, "cannot be sent: Expected int, got str - at $.id"),
    ((7,), {"tags": ["a", 1]}, r"cannot be sent: Expected str, got int - at $.tags[1]"),
    ((7,), {"tags": object()}, "a value of type object cannot travel as JSON"),
    ((True,), {}, "cannot be sent: Expected int, got bool - at $.id"),
    ((None,), {}, "cannot be sent: Expected int, got null - at $.id"),
]


@pytest.mark.parametrize(("args", "kwargs", "text"), CALLS)
def test_a_wrong_call_is_refused_and_named(args: tuple[Any, ...], kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError) as raised:
        payload_of(resize).encode(args, kwargs)
    assert text in str(raised.value)
    assert str(raised.value).startswith("task 't'")


@pytest.mark.parametrize("value", [math.nan, math.inf, [1.0, -math.inf]])
def test_what_json_has_no_number_for_is_refused(value: Any) -> None:
    def measure(value: float | list[float] | None) -> None: ...

    with pytest.raises(ValueError, match=r"an argument of task 't' cannot be .* no NaN and no infinity: \$\.value"):
        payload_of(measure).encode((value,), {})


NAIVE = datetime(2026, 11, 22)


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (datetime, NAIVE, "$.value"),
        (datetime | None, NAIVE, "$.value"),
        (list[datetime], [NOON, NAIVE], "$.value[...]"),
        (Annotated[datetime, "a note"], NAIVE, "$.value"),
        (Visit, Visit(NAIVE, []), "$.value.at"),
        (dict[str, list[Visit]], {"a": [Visit(NAIVE, [])]}, "$.value.a[0].at"),
    ],
)
def test_a_time_without_a_zone_is_refused(annotation: Any, value: Any, path: str) -> None:
    def at(value: Any) -> None: ...

    at.__annotations__["value"] = annotation
    with pytest.raises(TypeError) as raised:
        payload_of(at).encode((value,), {})
    assert str(raised.value).endswith((f"at {path}", f"at {path.replace('...', '1')}")), raised.value


def test_a_time_that_is_meant_to_have_no_zone_may_lack_it() -> None:
    def at(value: Annotated[datetime, msgspec.Meta(tz=False)]) -> None: ...

    payload = payload_of(at)
    assert payload.decode(payload.encode((NAIVE,), {})) == {"value": NAIVE}


# Payloads that do not fit

MISFITS = [
    (b'{"id":"x"}', "Expected int, got str - at $.id"),
    (b'{"id":7,"width":null}', "Expected int, got null - at $.width"),
    (b'{"id":7,"tags":[1]}', "Expected str, got int - at $.tags[0]"),
    (b"{}", "Object missing required field id"),
    (b"", "Object missing required field id"),
    (b"[7]", "Expected object, got array"),
    (b"null", "Expected object, got null"),
    (b"\xff", "JSON is malformed: invalid character (byte 0)"),
    (b'{"id":7', "JSON is malformed: it is cut off"),
]


@pytest.mark.parametrize(("data", "text"), MISFITS)
def test_a_payload_that_does_not_fit_is_named_by_its_path(data: bytes, text: str) -> None:
    with pytest.raises(PayloadError) as raised:
        payload_of(resize).decode(data)
    assert str(raised.value) == text


def test_a_model_that_does_not_fit_is_named_by_both_paths() -> None:
    def order(lines: list[Line]) -> None: ...

    with pytest.raises(PayloadError) as raised:
        payload_of(order).decode(b'{"lines":[{"sku":"a"},{"sku":"b","n":"x"}]}')
    assert str(raised.value).startswith("n: Input should be a valid integer")
    assert str(raised.value).endswith("at $.lines[1]")


def test_what_nests_too_deeply_does_not_fit() -> None:
    def loose(a: Any) -> None: ...

    with pytest.raises(PayloadError, match=r"recursion|Stack overflow"):
        payload_of(loose).decode(b'{"a":' + b"[" * 100_000)


def test_unknown_fields_are_ignored_unless_it_is_strict() -> None:
    data = b'{"id":7,"new":1}'
    assert payload_of(resize).decode(data) == {"id": 7, "width": 640, "tags": None}
    with pytest.raises(PayloadError, match="unknown field new"):
        payload_of(resize, is_strict=True).decode(data)


# Refused when registered


class Model:
    """As a Django model looks."""

    _meta = objects = None


def star(*ids: int) -> None: ...
def double_star(**ids: int) -> None: ...
def nameless(id: int, /) -> None: ...
def an_object(id: object) -> None: ...
def a_path(to: list[Path]) -> None: ...
def a_model(order: Model | None) -> None: ...
def late_context(id: int, ctx: Context) -> None: ...
def unknown(id: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def naive_default(at: datetime = NAIVE) -> None: ...
def two_of_a_kind(a: Size | Visit) -> None: ...


REFUSED = [
    (star, "has the parameter *ids: int; each argument needs a name"),
    (double_star, "has the parameter **ids: int; each argument needs a name"),
    (nameless, "has the positional-only parameter 'id'; arguments have names"),
    (an_object, "has the parameter 'id', whose object cannot travel as JSON: annotate a plain type"),
    (a_path, "has the parameter 'to', whose Path cannot travel as JSON: annotate a plain type"),
    (a_model, "has the parameter 'order', whose Model cannot travel as JSON: send the model's pk"),
    (late_context, "has the context as 'ctx'; it must be the first parameter"),
    (unknown, "has an annotation that is not known when it is registered: name 'Nowhere' is not defined"),
    (naive_default, "has a default without a time zone: at: "),
    (two_of_a_kind, "cannot be registered: Type unions may not contain more than one dict-like type"),
]


@pytest.mark.parametrize(("function", "text"), REFUSED)
def test_a_function_whose_arguments_cannot_travel_is_refused(function: Callable[..., Any], text: str) -> None:
    with pytest.raises(TypeError) as raised:
        payload_of(function)
    assert str(raised.value).startswith(f"task 't' {text}")
