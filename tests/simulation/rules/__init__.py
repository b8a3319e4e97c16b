"""Further rules of the judge, which know nothing of fastq either."""

from tests.simulation import judge as of_runs
from tests.simulation.judge import History, judge
from tests.simulation.rules.by_hand import canceled, deleted, paused
from tests.simulation.rules.counting import counters, memory
from tests.simulation.rules.keyed import in_turn, newest
from tests.simulation.rules.lanes import combined, idle, lane_limits, lanes_left, rests
from tests.simulation.rules.limits import semaphores
from tests.simulation.rules.making import groups, ticks, ticks_come
from tests.simulation.rules.orders import orders, sequences
from tests.simulation.rules.results import checkpoints, results, results_in_time

__all__ = ["judge_all", "names"]

RULES = (
    results,
    results_in_time,
    checkpoints,
    canceled,
    deleted,
    paused,
    groups,
    ticks,
    ticks_come,
    semaphores,
    newest,
    in_turn,
    counters,
    memory,
    lane_limits,
    rests,
    idle,
    combined,
    lanes_left,
    sequences,
    orders,
)


def judge_all(history: History) -> list[str]:
    """Return all broken promises."""
    found = [f"{rule.__name__}: {fault}" for rule in RULES for fault in rule(history)]
    return judge(history) + found


def names() -> set[str]:
    """Return the names of all rules."""
    return {rule.__name__ for rule in (*of_runs.RULES, *of_runs.OF_UNTOUCHED, *RULES)}
