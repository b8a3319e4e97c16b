"""Compare ways of doing the same thing within one run: a round of each in turn, medians, ratios round by round.

A busy machine slows all sides of a round alike, so the ratios hold where the absolute figures do not.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of each side's rounds, in the unit of the figures."""

    figures: Mapping[str, list[float]]

    def median(self, side: str) -> float:
        """Return a side's median."""
        return statistics.median(self.figures[side])

    def ratio(self, side: str, other: str) -> float:
        """Return the median of the ratios side / other, round by round."""
        pairs = zip(self.figures[side], self.figures[other], strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)

    def table(self, title: str, unit: str, base: str) -> str:
        """Return the figures as text: median, range, and the ratio to ``base``."""
        lines = [f"\n{title} ({unit}; {len(self.figures[base])} rounds, interleaved)"]
        for side, figures in self.figures.items():
            spread = f"{min(figures):,.1f}-{max(figures):,.1f}"
            lines.append(f"  {side:<34}{self.median(side):>12,.1f}  ({spread})  {self.ratio(side, base):.2f} x {base}")
        return "\n".join(lines)


def interleaved(sides: Mapping[str, Callable[[], float]], rounds: int = 9) -> Comparison:
    """Run each side once a round, after one round that does not count."""
    for side in sides.values():
        side()
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            figures[name].append(side())
    return Comparison(figures)
