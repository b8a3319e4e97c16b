"""The faults: one table, and a function for each that begins it, and ends it where somebody has to."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from tests.chaos.topology.books import Fault, Move
from tests.chaos.topology.sites import Cluster, Shard, Site

_LIVES_ON_S: Final = 2.0
"""How long a replaced master lives on before it hears of it."""
_LAG_S: Final = 0.3
_SLOW_S: Final = 3.0
_SILENT_S: Final = 4.0
_DELAY_S: Final = 0.05
_ROUNDS: Final = 3


class Stage(Protocol):
    """What a fault is given: the site, the pair that it strikes, and ways to wait."""

    site: Site
    shard: Shard
    fault: Fault
    chance: Random
    moves: list[Move]

    def rest(self, seconds: float) -> None: ...
    def wait(self, is_so: Callable[[], bool], what: str) -> None: ...
    def await_promotion(self) -> None: ...
    def now(self) -> float: ...


@dataclass(frozen=True)
class Scenario:
    """A fault by its name; ``repeats`` if a task may run again for it."""

    title: str
    do: Callable[[Stage], None]
    repeats: bool = True
    cluster_only: bool = False


def _kill(stage: Stage) -> None:
    stage.shard.master.kill()
    stage.await_promotion()
    stage.site.revive(stage.shard.master, stage.shard.replica)


def _freeze(stage: Stage) -> None:
    stage.shard.master.signal(signal.SIGSTOP)
    stage.await_promotion()
    stage.rest(_LIVES_ON_S)
    stage.shard.master.signal(signal.SIGCONT)


def _partition(stage: Stage) -> None:
    master = stage.shard.master.name
    stage.site.network.cut_off(master, [end for end in stage.site.ends if end != master])
    stage.await_promotion()
    stage.rest(_LIVES_ON_S)
    stage.site.network.heal()


def _lag(stage: Stage) -> None:
    master, replica = stage.shard.master.name, stage.shard.replica.name
    stage.site.network.slow(master, replica, _LAG_S)
    stage.rest(_SLOW_S)
    stage.site.network.cut_off(master, [replica])  # what is on its way does not arrive
    _kill(stage)
    stage.site.network.heal()


def _silent(stage: Stage) -> None:
    pair = (stage.shard.master, stage.shard.replica)
    for node in pair:
        node.signal(signal.SIGSTOP)
    stage.rest(_SILENT_S)
    for node in pair:
        node.signal(signal.SIGCONT)


def _planned(stage: Stage) -> None:
    stage.wait(lambda: stage.site.fail_over(stage.shard), "the order to fail over is taken")
    stage.await_promotion()


def _addresses(stage: Stage) -> None:
    stage.site.renew_addresses(stage.wait)


def _reshard(stage: Stage) -> None:
    assert isinstance(stage.site, Cluster)
    target = stage.chance.choice([shard.master for shard in stage.site.shards() if shard.master != stage.shard.master])
    for queue in stage.shard.queues:
        stage.site.move(queue, stage.shard.master, target, stage.wait)
        stage.moves.append(Move(queue, target.name, stage.now()))


def _key_by_key(stage: Stage) -> None:
    """Move slots in the smallest pieces, so that scripts meet tasks whose keys are on two nodes."""
    assert isinstance(stage.site, Cluster)
    for queue in [*stage.shard.queues] * _ROUNDS:
        shards = stage.site.shards()
        source = next(shard.master for shard in shards if queue in shard.queues)
        target = stage.chance.choice([shard.master for shard in shards if shard.master != source])
        stage.site.move(queue, source, target, stage.wait, piece=1)
        stage.moves.append(Move(queue, target.name, stage.now()))


def _delays(stage: Stage) -> None:
    stage.site.network.slow_all(_DELAY_S)
    stage.rest(_SLOW_S)
    stage.site.network.heal()


SCENARIOS: Final = {
    "kill": Scenario("SIGKILL of a master", _kill),
    "freeze": Scenario("SIGSTOP of a master, which lives on", _freeze),
    "partition": Scenario("master cut off from all but clients", _partition),
    "lag": Scenario("SIGKILL of a master whose replica is 0.3 s behind", _lag),
    "silent": Scenario("SIGSTOP of a master and its replica, 4 s", _silent),
    "planned": Scenario("planned fail-over", _planned),
    "addresses": Scenario("all nodes at new addresses", _addresses),
    "reshard": Scenario("queues moved to another master", _reshard, repeats=False, cluster_only=True),
    "keys": Scenario("queues moved key by key", _key_by_key, repeats=False, cluster_only=True),
    "delays": Scenario("50 ms more each way", _delays, repeats=False),
}


def scenarios_named(names: str, kind: str) -> list[str]:
    """Return the faults with these names, comma-separated, or all that the site can have."""
    wanted = [name for name in names.split(",") if name]
    if unknown := set(wanted) - SCENARIOS.keys():
        raise ValueError(f"no fault is called {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    return [
        name
        for name, scenario in SCENARIOS.items()
        if (not wanted or name in wanted) and (kind == "cluster" or not scenario.cluster_only)
    ]
