"""How much happens in a world: what is enqueued, how many faults there are, and how long each lasts at most."""

from typing import Final, NamedTuple


class Size(NamedTuple):
    """The size of a world."""

    tasks: int
    """Of the main producer."""
    share: float
    """Of what all others do."""
    counts: tuple[int, ...]
    """How many faults are drawn, beside those of the site."""
    retries: int
    """No task may be retried more often."""
    calm_s: float
    """For so long nothing is enqueued when half is, so that the other half comes when the last fault is over."""
    longest_s: float
    """No fault lasts longer, and no handler that is slow."""

    def of(self, number: int) -> int:
        """Return how often something happens that happens so often in a full world."""
        return max(1, round(number * self.share))

    def calm_before(self, nth: int, number: int) -> float:
        """Return for how long to wait before the nth of so many is enqueued."""
        return self.calm_s * (nth == number // 2)


SIZES: Final = {
    "full": Size(60, 1.0, (0, 1, 3, 6, 10, 12, 16), 2, 0.0, float("inf")),
    "short": Size(20, 0.35, (11, 13), 1, 60.0, 40.0),
}
