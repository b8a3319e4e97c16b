"""One round of one of a server's actors, on one queue, as fastq makes it."""

from typing import Any, Final

from fastq.broker.operations.aggregate import AggregationSet, GroupRule
from fastq.server.actors.actor import Actor
from fastq.server.actors.aggregator import Aggregator
from fastq.server.actors.archive_keeper import ArchiveKeeper
from fastq.server.actors.forwarder import Forwarder
from fastq.server.actors.janitor import Janitor
from fastq.server.actors.lost_tasks import LostTaskRules, LostTasks
from fastq.server.actors.reclaimer import Reclaimer
from fastq.server.actors.recoverer import Recoverer
from fastq.server.base.config import MAX_LOST, ServerConfig
from fastq.server.base.outage import Outage
from fastq.server.base.timing import STANDARD
from fastq.server.children.aggregation_child import AggregationFailure
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.tally import Tally
from tests.interop.differential.goal import NOTHING
from tests.interop.differential.groups import NO_TASK, Due, bundler
from tests.interop.differential.operation import Operation, Outcome
from tests.server.actors.groups import NoChild, config_of, in_process
from tests.server.harness import TRUSTING, in_flight_of
from tests.test_keyspace_server import US, Stage

REFUSALS: Final = {
    "a task with the id of the new one exists": "TaskIDConflictError",
    "another task holds the unique lock of the new one": "DuplicateTaskError",
}


async def tended(stage: Stage, operation: Operation) -> Outcome:
    """Make the round; of one that is to do nothing, and of an aggregator's, tell what it did."""
    name, queue = operation.args
    if name == "aggregator":
        return await _aggregate(stage, queue, operation.options["groups"])
    await _actor(stage, name, queue).tick()
    return Outcome("" if operation.gone else NOTHING)


def _actor(stage: Stage, name: str, queue: str) -> Actor:
    commands, clock = stage.commands, stage.in_flight.clock
    match name:
        case "forwarder":
            return Forwarder(commands, [queue], 5.0, clock, stage.in_flight.stats, lambda queue: None)
        case "janitor":
            config = ServerConfig(queues={queue: 1})
            return Janitor(commands, config, ArchiveKeeper(stage.broker, config, clock), clock, Outage())
    in_flight = InFlight.of(US, StallWatch(clock), clock, TRUSTING)  # another server's: it holds none of the stage's
    rules = LostTaskRules(lambda retried: 3600.0, MAX_LOST, None, Tally)
    lost = LostTasks(commands, rules, clock, in_flight.stats)
    return Recoverer(commands, [queue], in_flight, lost, Reclaimer(commands, clock, str, aggregates=True).reclaim)


class RecordingAggregator(Aggregator):
    """Remember why groups were not aggregated, and how many were."""

    failures: tuple[str, ...] = ()

    def _note_failure(self, one: AggregationSet, tasks: int, failure: AggregationFailure) -> None:
        self.failures += (failure.why,)


async def _aggregate(stage: Stage, queue: str, due: Due) -> Outcome:
    rule = GroupRule(1, due.max_delay_s, due.max_size)
    made: Any = in_process(bundler(due))
    config, clock, stats = config_of([queue], rule), stage.in_flight.clock, in_flight_of(stage.in_flight.clock).stats
    aggregator = RecordingAggregator(stage.commands, config, NoChild(made), clock, STANDARD, stats)
    await aggregator._go_round()  # Go's takes one set of each group in its round, too
    if aggregator.failures:
        return Outcome(error=", ".join(REFUSALS.get(why, NO_TASK) for why in aggregator.failures))
    return Outcome(str(stats.aggregated or NOTHING))
