"""The lanes of typed tasks, which may be made of their arguments: ``lane="openai:{tenant}"``."""

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from fastq.options import check_lane


class LaneTemplate:
    """A lane with the names of parameters in braces."""

    def __init__(self, text: str, task: str, parameters: Sequence[str]) -> None:
        self._text = text
        self._about = f"lane={text!r} of task {task!r}"
        try:
            parts = list(Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"{self._about} cannot be read: {error}") from None
        self._names = [name for _, name, _, _ in parts if name is not None]
        for _, name, form, conversion in parts:
            if name is not None and (name not in parameters or form or conversion):
                named = ", ".join(f"{{{each}}}" for each in parameters) or "none"
                raise ValueError(f"{self._about} may have its parameters in braces, {named}, not {{{name}}}")

    def of(self, arguments: Mapping[str, Any]) -> str:
        """Return the lane of a call."""
        for name in self._names:
            value = arguments[name]
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise TypeError(f"{self._about}: {name} must be text or a whole number, not {value!r}")
            if value == "":
                raise ValueError(f"{self._about}: {name} is empty, so there is no lane to wait in")
        return check_lane(self._text.format_map(arguments), "lane")


def lane_template(lane: str, task: str, parameters: Sequence[str]) -> LaneTemplate | None:
    """Return the template that a lane is; None if it is one and the same for all calls."""
    return LaneTemplate(lane, task, parameters) if "{" in lane or "}" in lane else None
