"""The rules of lanes: they are set, removed, paused and resumed here; the scripts that take tasks read them."""

from enum import StrEnum
from typing import Final

from fastq.broker.operation import Flow, Operation, scripted
from fastq.broker.operations.lanes import lane_keys
from fastq.wire import keys
from fastq.wire.limit import EACH_LANE, Limit, pool_of, write_rule

LANES_A_CALL: Final = 200
MOST_CALLS: Final = 2_000


class Change(StrEnum):
    """A change of a rule that needs no new limit."""

    REMOVE = "remove"
    PAUSE = "pause"
    RESUME = "resume"


def set_limit(queue: str, name: str, limit: Limit) -> Flow[bool]:
    """Set the limit of a lane, of a pool, of each lane or of the queue; a paused lane, pool or queue stays paused."""
    return _apply(queue, name, "set", write_rule(limit))


def declare_limit(queue: str, name: str, limit: Limit) -> Flow[bool]:
    """Set the limit from an app's code; False if the app declared the same before, even if others changed it since."""
    return _apply(queue, name, "declare", write_rule(limit))


def change_limit(queue: str, name: str, change: Change) -> Flow[bool]:
    """Remove a limit, or pause or resume a lane or pool, limited or not; False if nothing had to be changed."""
    return _apply(queue, name, change.value, "")


def _apply(queue: str, name: str, change: str, rule: str) -> Flow[bool]:
    is_changed: bool = yield write_limit(queue, name, change, rule)
    if is_changed and name == EACH_LANE and change != Change.PAUSE:
        for _ in range(MOST_CALLS):
            given: int = yield recheck_lanes(queue)
            if given < LANES_A_CALL:
                break
    return is_changed


def write_limit(queue: str, name: str, change: str, rule: str) -> Operation[bool]:
    """Change a rule. A lane, pool or queue that waits only for this rule is looked at again."""
    script_keys = (
        *lane_keys(queue),
        keys.app_limits(queue),
        keys.group(queue, name),
        keys.rates(queue),
        keys.pending(queue),
        keys.active(queue),
        keys.scheduled(queue),
        keys.retry(queue),
        keys.archived(queue),
    )
    args = (name, "" if name.endswith(":*") else pool_of(name), change, rule, keys.due_channel(queue))
    return scripted("set_limit", script_keys, args, bool, idempotent=change in ("set", "declare"))


def recheck_lanes(queue: str) -> Operation[int]:
    """Give a turn now to some of the lanes that wait for a free place or for their rate."""
    script_keys = (keys.turns(queue), keys.full(queue), keys.bell(queue))
    return scripted("recheck_lanes", script_keys, (LANES_A_CALL,), int, idempotent=True)
