"""The options of an entry as text, in asynq's form and in the given order; and asynq's hash of a configuration."""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from fastq.common.durations import format_duration, nanoseconds_of
from fastq.options import OPTIONS, OptionKind, OptionSpec
from fastq.wire.go_forms import header_form, text_form, time_form

_LISTED: Final = {spec.name: spec for spec in OPTIONS if spec.go}


def option_strings(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return options as ``Queue("low")``, ``Timeout(20s)``; options for which asynq has no form are left out.

    Raises the ``TypeError`` or ``ValueError`` of the options' checks.
    """
    return tuple(
        f"{_LISTED[name].go}({form})"
        for name, value in options.items()
        if value is not None and name in _LISTED
        for form in _forms(_LISTED[name], value)
    )


def _forms(spec: OptionSpec, value: Any) -> Iterator[str]:
    exact = spec.check(value, spec.name)
    match spec.kind:
        case OptionKind.HEADERS:
            yield from (header_form(*header) for header in exact.items())
        case OptionKind.DURATION:
            yield format_duration(nanoseconds_of(value, name=spec.name))
        case OptionKind.TIME:
            yield time_form(value)
        case OptionKind.TEXT:
            yield text_form(exact)
        case OptionKind.NUMBER:
            yield str(exact)


def config_hash(cronspec: str, task_type: str, payload: bytes | None, listed: Iterable[str]) -> str:
    """Return asynq's hash of a configuration; the order of options does not matter, ``None`` counts as an empty
    payload.

    The parts are joined without separators, as in asynq, so type ``t`` with payload ``p`` has the hash of type ``tp``
    without payload.
    """
    text = sha256(cronspec.encode() + task_type.encode() + (payload or b""))
    for option in sorted(option.encode() for option in listed):
        text.update(option)
    return text.hexdigest()
