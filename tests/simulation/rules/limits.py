"""A semaphore has so many tokens, and gives them."""

from collections.abc import Iterator
from typing import Final

from tests.simulation.happenings import Held
from tests.simulation.judge import History

TOKENS: Final = 2
UNDER_WAY_S: Final = 1.0
"""For so long a token may be on its way, there or back."""


def semaphores(history: History) -> Iterator[str]:
    """No more tokens are held at once than there are, and who asks for a free one gets it while nothing fails."""
    if history.rolled_back or any(one.kind == "clock" for one in history.struck):
        return  # a token may be lost, or taken for one whose time is up
    held = [(one.at_s, one.until_s, one.id) for one in history.all_of(Held) if one.until_s is not None]
    for one in history.all_of(Held):
        others = [id for from_s, to_s, id in held if from_s <= one.at_s < to_s and id != one.id]
        near = [id for from_s, to_s, id in held if from_s - UNDER_WAY_S <= one.at_s < to_s + UNDER_WAY_S]
        if one.until_s is not None and len(others) >= TOKENS:
            yield f"{one.id} has a token at {one.at_s:.3f} beside {' and '.join(others)}"
        if one.until_s is None and len(near) < TOKENS and history.is_quiet(one.at_s, one.at_s):
            yield f"{one.id} got no token at {one.at_s:.3f}, though {len(near)} were held"
