"""Values as JSON: what is refused or replaced, and the path by which it is named."""

import dataclasses
import enum
import math
import subprocess
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import pytest

from fastq.common.encoding import UNENCODABLE, encode_leniently, encode_strictly


class Kind(enum.Enum):
    """Values of an enum count as what they hold."""

    NAN = math.nan
    ONE = 1


@dataclasses.dataclass
class Row:
    """A dataclass."""

    when: object
    _hidden: object = math.nan


@dataclasses.dataclass(slots=True)
class Slotted:
    """A dataclass without a dict."""

    x: object


class Silent:
    """An object that cannot describe itself."""

    def __repr__(self) -> str:
        raise ValueError("no")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


GOOD: list[tuple[object, bytes]] = [
    ({"a": [1, None, True, 1.5, "null"], "b": ()}, b'{"a":[1,null,true,1.5,"null"],"b":[]}'),
    (OrderedDict(a=None), b'{"a":null}'),
    ([Kind.ONE, None], b"[1,null]"),
    ([Row(None), Slotted(None)], b'[{"when":null},{"x":null}]'),
    (UUID(int=0), b'"00000000-0000-0000-0000-000000000000"'),
    ([datetime(2030, 1, 1, tzinfo=UTC), None], b'["2030-01-01T00:00:00+00:00",null]'),
    ([orjson.Fragment(b"null")], b"[null]"),
    (np.float64(1.5), b"1.5"),
    ({"n": np.int8(3), "none": None}, b'{"n":3,"none":null}'),
    (np.arange(4).reshape(2, 2), b"[[0,1],[2,3]]"),
    (np.arange(4).reshape(2, 2).T, b"[[0,2],[1,3]]"),
    (np.arange(6)[::2], b"[0,2,4]"),
    (np.array(["a", None], dtype=object), b'["a",null]'),
    (np.array(3), b"3"),
    (np.zeros((2, 0)), b"[[],[]]"),
    (np.bool_(True), b"true"),
]
ODD_NUMBERS: list[tuple[object, str, bytes]] = [
    (math.nan, "$ is nan", b"null"),
    ({"x": [None, -math.inf]}, "$.x[1] is -inf", b'{"x":[null,null]}'),
    ({"a key": (math.inf,)}, "$['a key'][0] is inf", b'{"a key":[null]}'),
    ([Kind.NAN], "$[0] is nan", b"[null]"),
    (Row(math.nan), "$.when is nan", b'{"when":null}'),
    ([Slotted(math.nan)], "$[0].x is nan", b'[{"x":null}]'),
    ({"x": np.float32("nan")}, "$.x is nan", b'{"x":null}'),
    (np.array([[1, 2], [3, math.inf]]), "$[1][1] is inf", b"[[1.0,2.0],[3.0,null]]"),
    (np.array(math.nan), "$ is nan", b"null"),
]
BAD: list[tuple[object, str]] = [
    ({"rows": [1, 2, 3, {"when": Decimal(1)}]}, "$.rows[3].when is of type Decimal"),
    (object(), "$ is of type object"),
    ([{1, 2}], "$[0] is of type set"),
    ({"a": b"bytes"}, "$.a is of type bytes"),
    ({"a": {1: "one"}}, "$.a has a key of type int"),
    ({"\ud800": 1}, "$ has a key that is not valid Unicode"),
    (["\ud800"], "$[0] is not valid Unicode"),
    ({"n": 2**64}, "$.n is an integer of over 64 bits"),
    ([Row(Silent())], "$[0].when is of type Silent"),
    ([np.complex64(1)], "$[0] is of type complex64"),
    (np.array([1, object()]), "$[1] is of type object"),
]


@pytest.mark.parametrize(("value", "data"), GOOD)
def test_what_json_can_hold_is_encoded(value: object, data: bytes) -> None:
    assert encode_strictly(value, "payload") == data
    assert encode_leniently(value) == (data, [])


@pytest.mark.parametrize(("value", "fault", "data"), ODD_NUMBERS)
def test_nan_and_infinity_are_refused_or_become_null(value: object, fault: str, data: bytes) -> None:
    with pytest.raises(ValueError, match="has no NaN and no infinity") as error:
        encode_strictly(value, "payload")
    assert str(error.value) == f"payload cannot be encoded as JSON, which has no NaN and no infinity: {fault}"
    encoded, faults = encode_leniently(value)
    assert encoded == data
    assert [(str(one), one.is_number) for one in faults] == [(fault, True)]


@pytest.mark.parametrize(("value", "fault"), BAD)
def test_what_json_cannot_hold_is_refused_by_its_path_or_replaced(value: object, fault: str) -> None:
    with pytest.raises(TypeError) as error:
        encode_strictly(value, "result")
    kind = type(value).__name__
    assert str(error.value) == f"result of type {kind} cannot be encoded as JSON: {fault}; pass bytes instead"
    encoded, faults = encode_leniently(value)
    assert [(str(one), one.is_number) for one in faults] == [(fault, False)]
    assert encoded.count(UNENCODABLE.encode()) == 1


def test_a_marker_stands_where_the_value_was_and_describes_it() -> None:
    encoded, _ = encode_leniently({"id": 1, "rows": [{"price": Decimal("1.20")}, Silent(), "x" * 9_000 + "\ud800"]})
    value = orjson.loads(encoded)
    assert value["id"] == 1
    price, (silent, long) = value["rows"][0]["price"], value["rows"][1:]
    assert price == {UNENCODABLE: "decimal.Decimal", "why": "is of type Decimal", "repr": "Decimal('1.20')"}
    assert silent[UNENCODABLE] == f"{__name__}.Silent"
    assert len(long["repr"]) <= 400


@pytest.mark.parametrize("value", [nested(100_000), nested(254)], ids=["endless", "deep"])
def test_what_is_nested_too_deep_is_cut_off(value: list[Any]) -> None:
    with pytest.raises(TypeError, match=r"^result of type list cannot .* \$\[0\].* is nested deeper than 250 levels"):
        encode_strictly(value, "result")
    encoded, faults = encode_leniently(value)
    assert len(faults) == 1
    assert len(str(faults[0])) < 400
    assert UNENCODABLE.encode() in encoded


def test_a_value_that_contains_itself_is_cut_off() -> None:
    endless: list[Any] = [1]
    endless.append(endless)
    encoded, faults = encode_leniently(endless)
    assert len(faults) == 1
    assert encoded.startswith(b"[1,[1,[1,")


def test_a_value_whose_parts_raise_is_replaced_as_a_whole() -> None:
    @dataclasses.dataclass
    class Trap:
        x: object = dataclasses.field(init=False)

        def __getattr__(self, name: str) -> object:
            raise ZeroDivisionError(name)

    encoded, faults = encode_leniently({"a": Trap(), "b": {1}})
    assert orjson.loads(encoded)[UNENCODABLE] == "dict"
    assert [fault.path for fault in faults] == ["$"]


def test_many_faults_are_all_found() -> None:
    _, faults = encode_leniently([math.nan, {1}, {"a": math.inf}])
    assert [str(fault) for fault in faults] == ["$[0] is nan", "$[1] is of type set", "$[2].a is inf"]


def test_numpy_is_not_imported_for_an_app_without_it() -> None:
    code = "import sys; from fastq.common.encoding import encode_leniently as e; e(0j); print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"
