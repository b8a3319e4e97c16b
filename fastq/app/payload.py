"""The payload of a typed task: its arguments by name as a JSON object, as Go's ``json.Marshal`` writes a struct.

Both directions use one msgspec struct, made from the function's signature. A producer decodes the payload that it has
encoded, to check before sending that the function accepts it.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, get_args, get_type_hints

import msgspec
from msgspec.structs import asdict, astuple

from fastq.app.annotations import (
    check_annotations,
    decode_model,
    encode_model,
    has_loose_times,
    refuse_naive_times,
    with_time_zones,
)
from fastq.app.context import Context
from fastq.common.encoding import encode_strictly
from fastq.errors import PayloadError
from fastq.options import ELSEWHERE, OPTION_NAMES
from fastq.running import RunningTask

_PLAIN: Final = frozenset({str, int, bool, float, bytes, type(None)})
_MISFITS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_encode: Final = msgspec.json.Encoder(enc_hook=encode_model).encode


class Payload:
    """The conversion between the arguments of one function and payloads."""

    def __init__(self, name: str, function: Callable[..., Any], *, is_strict: bool) -> None:
        self._name = name
        signature = inspect.signature(function)
        hints = hints_of(self._about, function)
        parameters = list(signature.parameters.values())
        if parameters and _is_method(function, parameters[0]):
            raise TypeError(
                f"{self._about} is a method: a worker has no {parameters[0].name} to call it with; "
                "register a function that makes the object it needs"
            )
        self.result = hints.get("return", Any)
        self.takes_context = bool(parameters) and _is_context(hints.get(parameters[0].name))
        self.env: Any = None
        if self.takes_context:
            self.env = next(iter(get_args(hints[parameters.pop(0).name])), None)
        self._signature = signature.replace(parameters=parameters, return_annotation=signature.empty)
        for parameter in parameters:
            self._check(parameter, hints.get(parameter.name))
        self.names = tuple(parameter.name for parameter in parameters)
        self._positional = tuple(each.name for each in parameters if each.kind is not each.KEYWORD_ONLY)
        self._has_keywords = len(self._positional) < len(parameters)
        self._required = frozenset(each.name for each in parameters if each.default is each.empty)
        fields = [_field(each, with_time_zones(hints.get(each.name, Any))) for each in parameters]
        try:
            self.struct = msgspec.defstruct(
                "Arguments", fields, kw_only=True, forbid_unknown_fields=is_strict, gc=False
            )
            self._decode = msgspec.json.Decoder(self.struct, dec_hook=decode_model).decode
        except TypeError as error:
            raise TypeError(f"{self._about} cannot be registered: {error}") from None
        self.fields: tuple[msgspec.inspect.Field, ...] = check_annotations(self.struct, self._about)
        self._has_loose_times = has_loose_times(self.fields)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the payload of a call; ``TypeError`` if the function would not accept it, ``ValueError`` for NaN. The
        same arguments give the same bytes, whether they are passed by position or by name.
        """
        given = dict(zip(self._positional, args, strict=False))
        if kwargs:
            given.update(kwargs)
            given = {name: given[name] for name in self.names if name in given}
        if len(given) != len(args) + len(kwargs) or not self._required <= given.keys():
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                hint = self._hint(kwargs)
                raise TypeError(f"{self._about} is called as {self._signature}: {error}{hint}") from None
        try:
            data = _encode(given)
            if b"null" in data:  # msgspec encodes NaN as null, too
                encode_strictly(msgspec.to_builtins(given, enc_hook=encode_model), f"an argument of {self._about}")
            if self._has_loose_times:
                refuse_naive_times(msgspec.to_builtins(given, builtin_types=(datetime,), enc_hook=encode_model))
            self._decode(data)
        except (msgspec.MsgspecError, TypeError, OverflowError, RecursionError) as error:
            raise TypeError(f"{self._about} cannot be sent: {_words(error)}") from None
        return data

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return the arguments of a payload, including defaults; ``PayloadError`` names the first fault and its path.

        An empty payload, Go's nil, is an object without fields.
        """
        try:
            return asdict(self._decode(data or b"{}"))
        except _MISFITS as error:
            raise _misfit(error) from None

    def caller(self, function: Callable[..., Any]) -> Callable[[Any], Any]:
        """Return a callable that calls a function with the arguments in a task's payload; errors as in ``decode``.

        The code of ``decode`` is repeated here, because each task runs through it: one call less saves a tenth of a
        child's work for a task.
        """
        decode = self._decode
        if self._has_keywords:
            return lambda task: function(**self.decode(task.payload))

        def call(task: Any, /) -> Any:
            try:
                arguments = astuple(decode(task.payload or b"{}"))
            except _MISFITS as error:
                raise _misfit(error) from None
            return function(*arguments)

        return call

    def only_argument(self) -> Callable[[bytes], Any]:
        """Return a function that returns the one argument in a payload; errors as in ``decode``."""
        decode = self._decode

        def only(data: bytes) -> Any:
            try:
                return astuple(decode(data or b"{}"))[0]
            except _MISFITS as error:
                raise _misfit(error) from None

        return only

    def _hint(self, kwargs: Mapping[str, Any]) -> str:
        """Return a hint for a wrong call: how to pass options, if there are some in the arguments, or get a context."""
        known = {**dict.fromkeys(OPTION_NAMES), **ELSEWHERE}
        options = [known[name] or name for name in kwargs if name in known and name not in self.names]
        listed = ", ".join(f"{name}=..." for name in options)
        if options:
            return f"; options are given before: .options({listed}).enqueue(...)"
        first = next(iter(self._signature.parameters.values()), None)
        is_context = first is not None and first.name in ("ctx", "context", "self") and first.annotation is first.empty
        return f"; annotate {first.name}: Context, if it is to be the running task" if first and is_context else ""

    @property
    def _about(self) -> str:
        return f"task {self._name!r}"

    def _check(self, parameter: inspect.Parameter, hint: object) -> None:
        """Refuse a parameter that cannot be a field of a JSON object."""
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{self._about} has the parameter {parameter}; each argument needs a name")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"{self._about} has the positional-only parameter {parameter.name!r}; arguments have names")
        if isinstance(parameter.default, datetime) and parameter.default.utcoffset() is None:
            raise TypeError(f"{self._about} has a default without a time zone: {parameter}")
        if _is_context(hint):
            raise TypeError(f"{self._about} has the context as {parameter.name!r}; it must be the first parameter")


def hints_of(about: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return a function's annotations; ``TypeError``, which begins with ``about``, if a name in them is unknown."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{about} has an annotation that is not known when it is registered: {error}; "
            "define it above, and not for type checking only"
        ) from None


def _field(parameter: inspect.Parameter, annotation: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    default = parameter.default
    if default is parameter.empty:
        return parameter.name, annotation
    # A mutable default is shared by all calls, as in a plain call of the function.
    field = default if type(default) in _PLAIN else msgspec.field(default_factory=lambda: default)
    return parameter.name, annotation, field


def _is_method(function: Any, first: inspect.Parameter) -> bool:
    """Return whether a function is a method that needs an instance; a ``self`` annotated as Context does not count."""
    holder = getattr(function, "__qualname__", "").rpartition(".")[0]
    is_inside = bool(holder) and not holder.endswith("<locals>") and not inspect.ismethod(function)
    return is_inside and first.name in ("self", "cls") and first.annotation is first.empty


def _is_context(hint: Any) -> bool:
    kind = getattr(hint, "__origin__", hint)
    return kind is Context or kind is RunningTask


def _misfit(error: Exception) -> PayloadError:
    """Return the error of a task whose payload does not fit."""
    return PayloadError(_words(error).replace("Input data was truncated", "JSON is malformed: it is cut off"))


def _words(error: Exception) -> str:
    return str(error).replace("`", "") or type(error).__name__
