"""Keys of typed tasks: a text with the names of arguments in braces, checked when the task is registered."""

import string
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from fastq.options import check_text

_PARSER: Final = string.Formatter()


class KeyTemplate:
    """A key such as ``sync:{user_id}``; ``names`` are those of the arguments that it has."""

    def __init__(self, text: str, parameters: Mapping[str, Any], about: str) -> None:
        self._text, self._about = text, about
        try:
            parts = list(_PARSER.parse(text))
        except ValueError as error:
            raise ValueError(f"the key of {about} is malformed: {error}: {text!r}") from None
        self.names = tuple(name for _, name, _, _ in parts if name is not None)
        if any(spec or conversion for _, _, spec, conversion in parts):
            raise ValueError(f"the key of {about} takes names of arguments alone in its braces: {text!r}")
        if unknown := [name for name in self.names if name not in parameters]:
            known = ", ".join(parameters) or "none"
            raise ValueError(f"the key of {about} names {unknown[0]!r}, its arguments are: {known}")

    def fill(self, arguments: Mapping[str, Any]) -> str:
        """Return the key of a call; ``TypeError`` for an argument that has no text of its own."""
        for name in self.names:
            value = arguments[name]
            if not isinstance(value, str | int | UUID) or isinstance(value, bool):
                raise TypeError(
                    f"the key of {self._about} takes a str, an int or a UUID as {name!r}, not "
                    f"{type(value).__name__}: {value!r}"
                )
        return check_text(self._text.format(**{name: arguments[name] for name in self.names}), "key")
