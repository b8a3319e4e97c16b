"""The options of an entry as asynq lists them beside it, and hashes them: as text, in the order given."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastq.durations import nanoseconds_of
from fastq.wire.option_strings import OptionType, OptionValue, format_option

__all__ = ["option_strings"]

_PLAIN: Final = {
    "queue": OptionType.QUEUE,
    "task_id": OptionType.TASK_ID,
    "max_retry": OptionType.MAX_RETRY,
    "deadline": OptionType.DEADLINE,
    "process_at": OptionType.PROCESS_AT,
    "group": OptionType.GROUP,
}
_DURATIONS: Final = {
    "timeout": OptionType.TIMEOUT,
    "unique": OptionType.UNIQUE,
    "process_in": OptionType.PROCESS_IN,
    "retention": OptionType.RETENTION,
}


def option_strings(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return options that were checked, as ``Queue("low")``, ``Timeout(20s)``; ``unique_key`` has no such form."""
    return tuple(text for name, value in options.items() if value is not None for text in _forms(name, value))


def _forms(name: str, value: Any) -> Iterator[str]:
    if name in _PLAIN:
        yield format_option(_PLAIN[name], _exact(value))
    elif name in _DURATIONS:
        yield format_option(_DURATIONS[name], nanoseconds_of(value, name=name))
    elif name == "headers":
        yield from (format_option(OptionType.HEADER, (key, content)) for key, content in value.items())


def _exact(value: OptionValue) -> OptionValue:
    """Return the plain text of an enum of text, as the message has it."""
    return str.__str__(value) if isinstance(value, str) else value
