"""Further rules of the judge, which know nothing of fastq either."""

from tests.simulation.judge import History, judge
from tests.simulation.rules.by_hand import canceled, deleted, paused
from tests.simulation.rules.making import groups, ticks, ticks_come
from tests.simulation.rules.results import checkpoints, results, results_in_time

__all__ = ["judge_all"]

RULES = (results, results_in_time, checkpoints, canceled, deleted, paused, groups, ticks, ticks_come)


def judge_all(history: History) -> list[str]:
    """Return all broken promises."""
    found = [f"{rule.__name__}: {fault}" for rule in RULES for fault in rule(history)]
    return judge(history) + found
