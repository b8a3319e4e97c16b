"""The options of an entry as asynq lists them beside it, and hashes them: as text, in the order given."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastq.durations import format_duration, nanoseconds_of
from fastq.options import OPTIONS, OptionKind, OptionSpec
from fastq.wire.go_forms import header_form, text_form, time_form

__all__ = ["option_strings"]

_LISTED: Final = {spec.name: spec for spec in OPTIONS if spec.go}


def option_strings(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return options as ``Queue("low")``, ``Timeout(20s)``, without those that asynq has no form for.

    ``TypeError`` and ``ValueError`` are those of the options' checks.
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
