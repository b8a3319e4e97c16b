"""Values as bytes: by a payload codec of the app, or as JSON, strictly or leniently.

Parts that JSON cannot hold are refused or replaced, and reported with their path.

orjson silently writes NaN and infinity as null, and names neither path nor value of a part that it refuses. So values
with such parts are walked. All other values cost only a search for "null" in the output.
"""

import dataclasses
import math
import reprlib
import sys
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, Protocol

import orjson

UNENCODABLE: Final = "fastq:unencodable"
"""The key by which a marker is recognized. A marker replaces a value that JSON cannot hold."""
MAX_DEPTH: Final = 250
"""Deeper values are refused here, before orjson refuses them: it accepts 254 levels."""


class PayloadCodec(Protocol):
    """A codec for payloads that are not JSON.

    ``content_type`` names the codec in the tasks' header ``content-type``, for the process that decodes.
    """

    @property
    def content_type(self) -> str:
        """Return the name of the codec, such as "application/msgpack"."""

    def encode(self, value: Any, /) -> bytes:
        """Return a value as bytes."""

    def decode(self, data: bytes, /) -> Any:
        """Return the value that was encoded."""


_PLAIN: Final = frozenset({str, int, bool, type(None)})
_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """A part of a value that JSON cannot hold: its path, and why."""

    path: str
    why: str
    is_number: bool = False
    """Whether the part is NaN or infinity."""

    def __str__(self) -> str:
        path = self.path if len(self.path) <= 200 else f"{self.path[:100]} … {self.path[-100:]}"
        return f"{path} {self.why}"


def encode_strictly(value: object, what: str) -> bytes:
    """Return a value as JSON; a ``TypeError``, or a ``ValueError`` for NaN or infinity, names ``what`` and the path."""
    try:
        data = orjson.dumps(value)
    except TypeError:
        data, faults = _encode_by_parts(value)
    else:
        if b"null" not in data:
            return data  # nearly every payload returns here, after no more work than this
        data, faults = _checked(data, value)
    if not faults:
        return data
    fault = faults[0]
    if fault.is_number:
        raise ValueError(f"{what} cannot be encoded as JSON, which has no NaN and no infinity: {fault}")
    raise TypeError(f"{what} of type {type(value).__name__} cannot be encoded as JSON: {fault}; pass bytes instead")


def encode_leniently(value: object) -> tuple[bytes, list[Fault]]:
    """Return any value as JSON, and the parts that had to be replaced.

    null replaces NaN and infinity; a marker replaces other parts: ``{"fastq:unencodable": type, "why": …, "repr": …}``.
    """
    try:
        return _checked(orjson.dumps(value), value)
    except orjson.JSONEncodeError:
        pass
    try:
        return _encode_by_parts(value)
    except Exception as error:  # noqa: BLE001 - the user's objects are asked for their parts; a result never fails a task
        fault = Fault("$", f"cannot be encoded: {type(error).__name__}: {error}"[:400])
        return orjson.dumps(marker(value, fault.why)), [fault]


def marker(value: object, why: str) -> dict[str, str]:
    """Return the marker that is stored for a value that JSON cannot hold."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {UNENCODABLE: _utf8(name), "why": _utf8(why), "repr": _described(value)}


def _checked(data: bytes, value: object) -> tuple[bytes, list[Fault]]:
    """Return orjson's output and no faults; if orjson wrote NaN or infinity as null, encode by parts to find them."""
    return _encode_by_parts(value) if b"null" in data and _holds_odd_number(value) else (data, [])


def _encode_by_parts(value: object) -> tuple[bytes, list[Fault]]:
    faults: list[Fault] = []
    copy = _copy(value, "$", 0, faults)
    return _dumps(copy), faults


def _dumps(value: object) -> bytes:
    # With this option, orjson imports numpy at the first unknown type, which is slow, so it is set only if numpy is
    # loaded.
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY if "numpy" in sys.modules else None)


def _holds_odd_number(value: object) -> bool:
    """Return whether NaN or infinity is anywhere in a value that orjson accepted."""
    seen: list[Any] = [value]
    for part in seen:  # ``seen`` grows during the loop
        kind = type(part)
        if kind in _PLAIN:
            continue
        if kind is dict:
            seen.extend(part.values())
        elif kind is list:
            seen.extend(part)
        elif _is_odd_number(part):
            return True
        elif (parts := _parts(part)) is not None:
            seen.extend(inner for _, inner in parts)
    return False


def _copy(value: object, path: str, depth: int, faults: list[Fault]) -> Any:
    """Return a value that orjson accepts, and note the parts that had to be replaced."""
    if _is_array(value):
        value = _plain_array(value)
    if _is_odd_number(value) and not _is_array(value):
        faults.append(Fault(path, f"is {value}", is_number=True))
        return None
    parts = _parts(value)
    why = _flaw(value, parts, depth)
    if why:
        faults.append(Fault(path, why))
        return marker(value, why)
    if parts is None:
        return value
    if isinstance(value, Enum):
        return _copy(value.value, path, depth + 1, faults)
    if isinstance(value, list | tuple) or _is_array(value):
        return [_copy(inner, f"{path}[{place}]", depth + 1, faults) for place, inner in parts]
    return {key: _copy(inner, f"{path}{_step(key)}", depth + 1, faults) for key, inner in parts}


def _parts(value: Any) -> Iterable[tuple[Any, object]] | None:
    """Return the items of a container, by key or index; None for a value that orjson does not treat as a container."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list) or type(value) is tuple:
        return enumerate(value)
    if isinstance(value, Enum):
        return [("", value.value)]
    if _is_array(value):
        # An array that orjson accepts is not walked; for a large array, that saves minutes.
        return enumerate(value) if _is_odd_number(value) or not _is_taken(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = dict.fromkeys([*(field.name for field in dataclasses.fields(value)), *getattr(value, "__dict__", ())])
        return [(name, getattr(value, name)) for name in names if not name.startswith("_") and hasattr(value, name)]
    return None


def _flaw(value: object, parts: Iterable[tuple[Any, object]] | None, depth: int) -> str:
    """Return why a value cannot be written, apart from its parts; "" if it can."""
    if parts is None:
        return "" if _is_taken(value) else _reason(value)
    if depth >= MAX_DEPTH:
        return f"is nested deeper than {MAX_DEPTH} levels, or contains itself (recursion)"
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str:
                return f"has a key of type {type(key).__name__}"
            if not _is_taken(key):
                return "has a key that is not valid Unicode"
    return ""


def _reason(value: object) -> str:
    if isinstance(value, str):
        return "is not valid Unicode"
    if isinstance(value, int):
        return "is an integer of over 64 bits"
    return f"is of type {type(value).__name__}"


def _is_taken(value: object) -> bool:
    try:
        _dumps(value)
    except TypeError:
        return False
    return True


def _is_odd_number(value: Any) -> bool:
    """Return whether a value is NaN or infinity, or an array that contains one of these."""
    if type(value) is float:
        return not math.isfinite(value)
    if type(value).__module__ != "numpy" or getattr(getattr(value, "dtype", None), "kind", "") != "f":
        return False
    return not sys.modules["numpy"].isfinite(value).all()


def _plain_array(array: Any) -> Any:
    """Return an array in C order, which orjson accepts; an array without dimensions becomes a scalar."""
    return array.copy() if array.ndim else array[()]


def _is_array(value: object) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _step(key: str) -> str:
    return f".{key}" if key.isidentifier() else f"[{key!r:.100}]"


def _described(value: object) -> str:
    try:
        text = _short.repr(value)
    except Exception as error:  # noqa: BLE001 - the user's __repr__; a failure to describe must not fail the task
        text = f"<its __repr__ raised {type(error).__name__}>"
    return _utf8(text[:400])


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
