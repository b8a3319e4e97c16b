"""The fields of a form for a typed task, and the task that is made from their values."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import inspect
from msgspec.structs import FieldInfo

from fastq.app.annotations import decode_model, encode_model
from fastq.app.function import TaskFunction
from fastq.task import Task

PREFIX: Final = "arg."
_HINTS: Final[Mapping[type, str]] = {
    inspect.StrType: "text",
    inspect.IntType: "whole number",
    inspect.FloatType: "number",
    inspect.DecimalType: "number",
    inspect.BytesType: "base64",
    inspect.DateTimeType: "time, such as 2026-11-22T06:00:00Z",
    inspect.DateType: "day, such as 2026-11-22",
    inspect.TimeType: "time of day, such as 06:00:00",
    inspect.TimeDeltaType: "duration, such as PT1H30M",
    inspect.UUIDType: "UUID",
}
"""The types whose values are entered as a line of text, each with a hint. Values of all other types are JSON."""
_PLACE: Final = re.compile(r"\$\.(\w+)")


class MisfitsError(ValueError):
    """Raised when values of a form do not fit; ``wrong`` has the reason for each field, by its name."""

    def __init__(self, wrong: Mapping[str, str]) -> None:
        super().__init__("some fields do not fit")
        self.wrong = wrong


@dataclass(frozen=True, slots=True)
class Input:
    """A field of the form; ``choices`` are pairs of JSON and text, ``default`` is JSON or empty."""

    name: str
    kind: str
    hint: str
    choices: tuple[tuple[str, str], ...]
    default: str
    is_optional: bool

    @property
    def key(self) -> str:
        """Return the name of the field in the form."""
        return f"{PREFIX}{self.name}"


def inputs_of(task: TaskFunction[..., Any]) -> list[Input]:
    """Return the fields for the arguments of a task."""
    return [_input(field) for field in task.payload.fields]


def _input(field: inspect.Field) -> Input:
    of, is_nullable = _plain(field.type)
    choices = tuple(_choices(of))
    kind = "choice" if choices else "line" if type(of) in _HINTS else "json"
    hint = "" if choices else _HINTS.get(type(of), "JSON")
    if isinstance(of, inspect.ListType | inspect.SetType | inspect.VarTupleType | inspect.TupleType):
        hint = "JSON, [...]"
    elif isinstance(of, inspect.DictType | inspect.DataclassType | inspect.StructType | inspect.TypedDictType):
        hint = "JSON, {...}"
    default = _default(field)
    return Input(field.name, kind, hint, choices, default, is_nullable or not field.required)


def _plain(of: inspect.Type) -> tuple[inspect.Type, bool]:
    """Return a type without its metadata and without None, and whether the type allows None."""
    while isinstance(of, inspect.Metadata):
        of = of.type
    if not isinstance(of, inspect.UnionType) or not of.includes_none:
        return of, False
    others = [each for each in of.types if not isinstance(each, inspect.NoneType)]
    return (_plain(others[0])[0] if len(others) == 1 else of), True


def _choices(of: inspect.Type) -> Iterator[tuple[str, str]]:
    values: tuple[Any, ...] = ()
    if isinstance(of, inspect.BoolType):
        values = (True, False)
    elif isinstance(of, inspect.LiteralType):
        values = of.values
    elif isinstance(of, inspect.EnumType):
        values = tuple(member.value for member in of.cls)
    for value in values:
        text = json.dumps(value)
        yield text, value if isinstance(value, str) else text


def _default(field: inspect.Field) -> str:
    if field.required:
        return ""
    try:
        value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        return msgspec.json.encode(value, enc_hook=encode_model).decode()
    except (TypeError, ValueError):  # a default need not be possible in a payload
        return "its own"


def task_of(task: TaskFunction[..., Any], given: Mapping[str, str]) -> Task:
    """Return the task made from the typed fields; ``MisfitsError`` names the fields that do not fit."""
    types = {info.name: info for info in msgspec.structs.fields(task.payload.struct)}
    values, wrong = {}, {}
    for each in inputs_of(task):
        text = given.get(each.key, "")
        if text.strip() or not each.is_optional:
            try:
                values[each.name] = _read(each, types[each.name], text)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                wrong[each.key] = _words(error)
        elif not each.default:
            values[each.name] = None
    if wrong:
        raise MisfitsError(wrong)
    try:
        return task.task(**values)
    except (TypeError, ValueError) as error:
        place = _PLACE.search(str(error))
        raise (MisfitsError({f"{PREFIX}{place[1]}": str(error)}) if place else error) from None


def _read(of: Input, field: FieldInfo, text: str) -> Any:
    if of.kind == "line" and not (of.hint.endswith("number") and _is_json(text)):
        text = json.dumps(text if of.hint == "text" else text.strip())
    elif not text.strip():
        raise ValueError("is needed")
    return msgspec.json.decode(text, type=field.type, dec_hook=decode_model)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return False
    return True


def _words(error: Exception) -> str:
    return str(error).replace("`", "") or type(error).__name__
