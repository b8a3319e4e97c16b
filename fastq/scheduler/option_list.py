"""The options of an entry as asynq lists them beside it, and hashes them: as text, in the order given."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastq.durations import nanoseconds_of
from fastq.options import OPTIONS, OptionKind, OptionSpec, check_headers
from fastq.wire.option_strings import format_option

__all__ = ["option_strings"]

_LISTED: Final = {spec.name: spec for spec in OPTIONS if spec.go is not None}


def option_strings(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return options as ``Queue("low")``, ``Timeout(20s)``, without those that asynq has no form for."""
    return tuple(
        text
        for name, value in options.items()
        if value is not None and name in _LISTED
        for text in _forms(_LISTED[name], value)
    )


def _forms(spec: OptionSpec, value: Any) -> Iterator[str]:
    assert spec.go is not None
    match spec.kind:
        case OptionKind.HEADERS:
            yield from (format_option(spec.go, header) for header in check_headers(value, spec.name).items())
        case OptionKind.DURATION:
            yield format_option(spec.go, nanoseconds_of(value, name=spec.name))
        case OptionKind.TEXT:
            yield format_option(spec.go, str.__str__(value))  # an enum of text is its text, as in the message
        case _:
            yield format_option(spec.go, value)
