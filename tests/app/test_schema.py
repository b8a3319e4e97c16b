"""The schema of an app's tasks, and which changes of it break what waits in queues."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import jsonschema
import msgspec
import orjson
import pytest

from fastq import App
from fastq.app.payload import Payload
from fastq.app.schema import schema_of
from fastq.app.schema_diff import breaking_changes
from tests.app.test_payload import VALUES, Line, everything


def schema(function: Callable[..., Any], name: str = "t", **settings: Any) -> dict[str, Any]:
    app = App()
    app.task(name, **settings)(function)
    exported: dict[str, Any] = orjson.loads(orjson.dumps(schema_of(app)))
    return exported


def test_what_a_producer_sends_is_valid_by_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(schema(everything)["tasks"]["t"]["payload"])
    payload = Payload("t", everything, is_strict=False)
    for name, (value, _) in VALUES.items():
        validator.validate(orjson.loads(payload.encode((), {"number": 7, name: value})))
    assert not validator.is_valid({"number": "7"})
    assert not validator.is_valid({"number": 7, "lines": [{"n": 1}]})
    assert not validator.is_valid({})


def test_definitions_of_models_stand_where_the_references_look() -> None:
    def order(lines: list[Line], size: "tuple[Point, ...]") -> None: ...

    payload = schema(order)["tasks"]["t"]["payload"]
    assert set(payload["$defs"]) == {"Point"}
    jsonschema.Draft202012Validator(payload).validate({"lines": [{"sku": "a"}], "size": [{"x": 1}]})


class Point(msgspec.Struct):
    x: int
    next: "Point | None" = None


class Wide(msgspec.Struct):
    x: int
    y: int = 0


class Narrow(msgspec.Struct):
    x: int
    y: int


@dataclass
class Loose:
    x: float


class Opt(TypedDict, total=False):
    a: int


class Req(TypedDict):
    a: int


def required(a: int, b: int) -> None: ...
def optional(a: int, b: int = 0) -> None: ...
def one(a: int) -> None: ...
def text(a: str) -> None: ...
def real(a: float) -> None: ...
def nullable(a: int | None) -> None: ...
def anything(a: Any) -> None: ...
def either(a: int | str) -> None: ...
def words(a: Literal["x", "y"]) -> None: ...
def fewer_words(a: Literal["x"]) -> None: ...
def short(a: Annotated[str, msgspec.Meta(max_length=3)]) -> None: ...
def long(a: Annotated[str, msgspec.Meta(min_length=2)]) -> None: ...
def large(a: Annotated[int, msgspec.Meta(ge=10)]) -> None: ...
def patterned(a: Annotated[str, msgspec.Meta(pattern="^x")]) -> None: ...
def numbers(a: list[int]) -> None: ...
def texts(a: list[str]) -> None: ...
def pair(a: tuple[int, int]) -> None: ...
def mixed(a: tuple[int, str]) -> None: ...
def by_name(a: dict[str, int]) -> None: ...
def by_name_text(a: dict[str, str]) -> None: ...
def wide(a: Wide) -> None: ...
def narrow(a: Narrow) -> None: ...
def loose(a: Loose) -> None: ...
def chain(a: Point) -> None: ...
def opt(a: Opt) -> None: ...
def req(a: Req) -> None: ...
def raw(a: bytes) -> None: ...


BREAKING: list[tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], str]] = [
    (one, required, {}, "$.b is required now"),
    (optional, required, {}, "$.b is required now"),
    (one, text, {}, "$.a no longer takes integer, but string"),
    (real, one, {}, "$.a no longer takes integer/number, but integer"),
    (nullable, one, {}, "$.a no longer takes null, but integer"),
    (either, text, {}, "$.a no longer takes integer, but string"),
    (anything, one, {}, "$.a took anything, and is integer now"),
    (words, fewer_words, {}, "$.a no longer takes 'y'"),
    (text, words, {}, "$.a is one of ['x', 'y'] now"),
    (text, short, {}, "$.a has maxLength 3 now"),
    (text, long, {}, "$.a has minLength 2 now"),
    (one, large, {}, "$.a has minimum 10 now"),
    (text, patterned, {}, "$.a has pattern '^x' now"),
    (text, raw, {}, "$.a has contentEncoding 'base64' now"),
    (numbers, texts, {}, "$.a[] no longer takes integer, but string"),
    (numbers, pair, {}, "$.a has minItems 2 now"),
    (pair, mixed, {}, "$.a[1] no longer takes integer, but string"),
    (by_name, by_name_text, {}, "$.a.* no longer takes integer, but string"),
    (wide, narrow, {}, "$.a.y is required now"),
    (opt, req, {}, "$.a.a is required now"),
    (optional, one, {"strict": True}, "$.b is refused now"),
    (narrow, numbers, {}, "$.a no longer takes object, but array"),
]


@pytest.mark.parametrize(("old", "new", "settings", "text"), BREAKING)
def test_a_change_that_refuses_what_waits_is_found(
    old: Callable[..., Any], new: Callable[..., Any], settings: dict[str, Any], text: str
) -> None:
    assert f"t: {text}" in breaking_changes(schema(old), schema(new, **settings))


HARMLESS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (required, optional),
    (optional, one),
    (one, optional),
    (one, real),
    (one, nullable),
    (one, either),
    (one, anything),
    (text, either),
    (fewer_words, words),
    (words, text),
    (short, text),
    (large, one),
    (narrow, wide),
    (narrow, loose),
    (chain, chain),
    (req, opt),
    (everything, everything),
]


@pytest.mark.parametrize(("old", "new"), HARMLESS)
def test_what_takes_all_that_waits_breaks_nothing(old: Callable[..., Any], new: Callable[..., Any]) -> None:
    assert breaking_changes(schema(old), schema(new)) == []


def test_names_that_are_gone_are_found_unless_they_are_aliases() -> None:
    old = schema(one, "a", aliases=["b"])
    assert breaking_changes(old, schema(one, "c")) == [
        "a: no task has this name any more",
        "b: no task has this name any more",
    ]
    assert breaking_changes(old, schema(one, "c", aliases=["a"])) == ["b: no task has this name any more"]
    assert breaking_changes(old, schema(one, "c", aliases=["a", "b"])) == []
    assert breaking_changes(old, schema(text, "c", aliases=["a", "b"])) == [
        "a: $.a no longer takes integer, but string"
    ]


def of_type(a: Any) -> dict[str, Any]:
    def take(a: Any) -> None: ...

    take.__annotations__ = {"a": a, "return": None}
    return schema(take)


def tagged(x: Any) -> tuple[Any, Any]:
    """Return two tagged classes with a field of the same class, which has ``x`` of a given type."""
    inner = msgspec.defstruct("D", [("x", x)])
    first, second = (msgspec.defstruct(name, [("d", inner)], tag=True) for name in "AB")
    return first, second


def test_a_nested_change_is_found_behind_each_union() -> None:
    (a, b), (new_a, new_b) = tagged(int), tagged(str)
    found = ["t: $.a.d.x no longer takes integer, but string"]
    assert breaking_changes(of_type(b), of_type(new_b)) == found
    assert breaking_changes(of_type(b), of_type(new_a | new_b)) == found
    assert breaking_changes(of_type(a | b), of_type(new_b | new_a)) == found
    assert breaking_changes(of_type(b), of_type(a | b)) == []


class Leaf(msgspec.Struct, tag=True):
    x: int


class NewLeaf(msgspec.Struct, tag="Leaf"):
    x: str


class Plus(msgspec.Struct, tag=True):
    left: "Plus | Minus | Leaf"
    right: "Plus | Minus | Leaf"


class Minus(msgspec.Struct, tag=True):
    of: "Minus | Plus | Leaf"


class NewPlus(msgspec.Struct, tag="Plus"):
    left: "NewPlus | NewMinus | NewLeaf"
    right: "NewPlus | NewMinus | NewLeaf"


class NewMinus(msgspec.Struct, tag="Minus"):
    of: "NewMinus | NewPlus | NewLeaf"


def test_a_change_among_recursive_classes_is_found_once() -> None:
    assert breaking_changes(of_type(Plus), of_type(NewMinus | NewPlus)) == [
        "t: $.a.left.of.x no longer takes integer, but string"
    ]
    assert breaking_changes(of_type(Plus | Minus), of_type(Minus | Plus)) == []


def test_many_classes_that_hold_each_other_are_compared_in_time() -> None:
    names = [f"C{number}" for number in range(12)]
    refs = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}

    def root(last: str) -> dict[str, Any]:
        defs: dict[str, Any] = {
            name: {
                "type": "object",
                "properties": {"type": {"const": name}, "left": refs, "right": refs},
                "required": ["type", "left", "right"],
            }
            for name in names
        }
        defs[names[-1]]["properties"]["x"] = {"type": last}
        return {"tasks": {"t": {"aliases": [], "payload": {**refs, "$defs": defs}}}}

    found = breaking_changes(root("integer"), root("string"))
    assert [text.rpartition(".")[2] for text in found] == ["x no longer takes integer, but string"]
    assert breaking_changes(root("integer"), root("integer")) == []
