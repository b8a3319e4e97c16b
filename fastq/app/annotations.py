"""The annotations of typed tasks: types that msgspec supports, and pydantic models, which convert themselves."""

from collections.abc import Callable
from datetime import datetime
from functools import partial, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import inspect
from msgspec.inspect import CustomType, DateTimeType, Field, Type, type_info

from fastq.common.encoding import UNENCODABLE

_MARKER: Final = f'"{UNENCODABLE}"'.encode()
# TimeType is not among these, because orjson refuses a time with a zone.
_KEPT_AS_IT_IS: Final = frozenset(
    {
        *(inspect.AnyType, inspect.NoneType, inspect.BoolType, inspect.IntType, inspect.FloatType, inspect.StrType),
        *(inspect.ListType, inspect.VarTupleType, inspect.TupleType, inspect.UnionType),
        *(inspect.DateTimeType, inspect.DateType, inspect.UUIDType, inspect.EnumType),
        *(inspect.LiteralType, inspect.DataclassType, inspect.TypedDictType),
    }
)
_AWARE = Annotated[datetime, msgspec.Meta(tz=True)]


def with_time_zones(annotation: Any) -> Any:
    """Return an annotation in which each datetime must have a time zone, unless its own metadata allows none."""
    if annotation is datetime:
        return _AWARE
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *notes = args
        if inner is datetime and not any(isinstance(note, msgspec.Meta) and note.tz is not None for note in notes):
            notes.append(msgspec.Meta(tz=True))
        return Annotated[with_time_zones(inner) if inner is not datetime else inner, *notes]
    aware = tuple(with_time_zones(arg) for arg in args)
    if aware == args:
        return annotation
    return reduce(or_, aware) if origin in (Union, UnionType) else origin[aware]


def check_annotations(struct: type[msgspec.Struct], about: str) -> tuple[Field, ...]:
    """Return the fields of a struct; ``TypeError`` names an annotation that cannot be JSON."""
    info = type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        for part in _parts(field.type):
            if isinstance(part, CustomType) and not hasattr(part.cls, "model_validate_json"):
                raise TypeError(
                    f"{about} has the parameter {field.name!r}, whose {part.cls.__qualname__} cannot travel as JSON: "
                    f"{_advice(part.cls)}"
                )
    return info.fields


def _advice(kind: type) -> str:
    if hasattr(kind, "_meta") and hasattr(kind, "objects"):
        return "send the model's pk, and get it from the database in the task"
    return "annotate a plain type, a dataclass, a TypedDict, a msgspec.Struct or a pydantic model"


def _parts(info: Type) -> list[Type]:
    """Return a type and all its parts."""
    found: list[Type] = [info]
    for part in found:  # the loop appends to the list
        for name in part.__struct_fields__:
            value = getattr(part, name)
            of_fields = value if isinstance(value, tuple) else (value,)
            for inner in (each.type if isinstance(each, Field) else each for each in of_fields):
                if isinstance(inner, Type) and not any(inner is seen for seen in found):
                    found.append(inner)
    return found


def has_loose_times(fields: tuple[Field, ...]) -> bool:
    """Return whether a class among the annotations has a datetime that may lack a time zone."""
    parts = (part for field in fields for part in _parts(field.type))
    return any(isinstance(part, DateTimeType) and part.tz is None for part in parts)


def refuse_naive_times(value: Any, path: str = "$") -> None:
    """Raise ``TypeError`` for a datetime without a time zone anywhere in a value."""
    if isinstance(value, dict):
        for name, part in value.items():
            refuse_naive_times(part, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            refuse_naive_times(part, f"{path}[{place}]")
    elif isinstance(value, datetime) and value.utcoffset() is None:
        raise TypeError(f"{value!r} has no time zone - at {path}")


def result_encoder(annotation: Any) -> Callable[[Any], Any] | None:
    """Return a function that turns results into plain values, None if the runner can encode results without it."""
    try:
        parts = _parts(type_info(annotation))
    except TypeError:
        return None
    return None if all(_is_kept(part) for part in parts) else _plain


def result_decoder(annotation: Any) -> Callable[[bytes | None], Any]:
    """Return a function that turns the stored result of a task into the value that the task's function returned. It
    raises ``ValueError`` if that is not possible, for example if a marker replaces a part that JSON cannot hold.
    """
    decode = _decoder(annotation)
    return decode if decode in (_as_it_is, _nothing) else partial(_decoded_whole, decode)


def _decoded_whole(decode: Callable[[bytes | None], Any], data: bytes | None) -> Any:
    if data is not None and _MARKER in data:
        _refuse_markers(_loosely(data))
    return decode(data)


def _refuse_markers(value: Any) -> None:
    if isinstance(value, dict) and UNENCODABLE in value:
        raise ValueError(f"{value.get('repr')} {value.get('why')}, and was not kept")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_markers(part)


def _decoder(annotation: Any) -> Callable[[bytes | None], Any]:
    alternatives = {*get_args(annotation)} if get_origin(annotation) in (Union, UnionType) else {annotation}
    if alternatives <= {bytes, NoneType}:
        return _as_it_is if bytes in alternatives else _nothing
    if bytes in alternatives or Any in alternatives:
        return _loosely
    try:
        decode = msgspec.json.Decoder(annotation, dec_hook=decode_model).decode
    except TypeError:
        return _loosely
    return lambda data: None if data is None else decode(data)


def _as_it_is(data: bytes | None) -> bytes | None:
    return data


def _nothing(data: bytes | None) -> None:
    del data


def _loosely(data: bytes | None) -> Any:
    try:
        return None if data is None else msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data


def _is_kept(part: Type) -> bool:
    """Return whether the runner can encode a part of a result without conversion."""
    if isinstance(part, inspect.DictType):
        return isinstance(part.key_type, inspect.StrType | inspect.AnyType)
    return type(part) in _KEPT_AS_IT_IS


def _plain(result: Any) -> Any:
    if type(result) is bytes:
        return result
    try:
        return msgspec.to_builtins(result, enc_hook=encode_model, str_keys=True)
    except Exception:  # noqa: BLE001 - the task is done; the runner logs the parts of its result that cannot be kept
        return result


def encode_model(value: Any) -> Any:
    """Return a pydantic model as JSON values; ``TypeError`` for other types that msgspec does not know."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"a value of type {type(value).__qualname__} cannot travel as JSON: {_advice(type(value))}")


def decode_model(kind: Any, value: Any) -> Any:
    """Return the pydantic model of a part of a payload; ``ValueError`` names the first fault and its path."""
    try:
        return kind.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        first = error.errors()[0] if hasattr(error, "errors") else {"msg": str(error), "loc": ()}
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        raise ValueError(f"{path[1:]}: {first['msg']}" if path else first["msg"]) from None
