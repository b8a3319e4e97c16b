"""The types of options that are numbers."""

import math
from typing import Any

import click


class IntegerRange(click.IntRange):
    """An integer within a range. An error calls it so, where click's own type says "integer range"."""

    name = "integer"


class NumberRange(click.FloatRange):
    """A number within a range. Unlike click's own type, this one refuses ``nan``, and is called a number."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check a number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number
