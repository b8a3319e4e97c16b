"""Fills in keys and lanes of typed tasks, which may name arguments in braces: ``lane="openai:{tenant}"``."""

import string
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from fastq.options import check_options

TEMPLATES: Final = ("key", "lane")
"""The options whose text may name arguments."""

_PARSER: Final = string.Formatter()


class Template:
    """The text of an option that may name any of ``parameters`` in braces; ``about`` names the task in errors."""

    def __init__(self, option: str, text: str, parameters: Sequence[str], about: str) -> None:
        self._option, self._text, self._about = option, text, f"the {option} of {about}"
        try:
            parts = list(_PARSER.parse(text))
        except ValueError as error:
            raise ValueError(f"{self._about} is malformed: {error}: {text!r}") from None
        self._names = [name for _, name, _, _ in parts if name is not None]
        if any(spec or conversion for _, _, spec, conversion in parts):
            raise ValueError(f"{self._about} takes names of arguments alone in its braces: {text!r}")
        if unknown := [name for name in self._names if name not in parameters]:
            known = ", ".join(parameters) or "none"
            raise ValueError(f"{self._about} names {unknown[0]!r}, its arguments are: {known}")

    def fill(self, arguments: Mapping[str, Any]) -> str:
        """Return the checked text for a call; ``TypeError`` for an argument other than a str, an int or a UUID."""
        for name in self._names:
            value = arguments[name]
            if not isinstance(value, str | int | UUID) or isinstance(value, bool):
                raise TypeError(
                    f"{self._about} takes a str, an int or a UUID as {name!r}, not {type(value).__name__}: {value!r}"
                )
            if value == "":
                raise ValueError(f"{self._about} needs an argument {name!r} that is not empty: {self._text!r}")
        text: str = check_options({self._option: self._text.format_map(arguments)})[self._option]
        return text
