"""The doctor's examination: makes all checks, and repeats a check that looks wrong before it reports the problem."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fastq.broker.inspect.keyspace import count_keys, node_tags
from fastq.broker.inspect.queues import Pulse, list_queues, read_pulse
from fastq.broker.inspect.redis_state import node_memory
from fastq.broker.inspect.registry import RegistryEntry, read_registry
from fastq.broker.inspect.servers import cluster_slots
from fastq.broker.operation import Flow, Pause
from fastq.broker.operations.presence import read_servers
from fastq.broker.operations.signs import read_takeovers
from fastq.errors import QueueNotFoundError
from fastq.inspector.doctor.clocks import RENEWED_S, check_clock, check_renewal, check_server_clocks
from fastq.inspector.doctor.finding import Finding, Level, Refused, ask, attempt, unseen
from fastq.inspector.doctor.handlers import check_handlers
from fastq.inspector.doctor.judge import judge
from fastq.inspector.doctor.lanes import check_lanes
from fastq.inspector.doctor.places import is_sendable
from fastq.inspector.doctor.presence import check_registry, check_takeovers, stale_before
from fastq.inspector.doctor.queue_checks import check_archives, check_paused, check_served, unserved
from fastq.inspector.doctor.redis_checks import check_node_memory, check_redis
from fastq.inspector.doctor.repairs import Repair, forget_servers, repairs_of
from fastq.inspector.doctor.slow import check_slow_commands
from fastq.inspector.doctor.suspects import KEY_KINDS, Survey
from fastq.inspector.doctor.versions import check_formats
from fastq.inspector.doctor.vitals import Vitals, read_vitals
from fastq.inspector.doctor.walk import Scope, find_nodes, survey_keys, survey_queue

LIMIT: Final = 1_000_000
SECOND_LOOK_S: Final = 2.0


@dataclass(frozen=True)
class Order:
    """What to examine: all queues unless some are named, and at most ``limit`` ids (None: all of them).

    ``note`` is called with the number of ids examined so far, and with their total.
    """

    now_ns: Callable[[], int]
    queues: tuple[str, ...] = ()
    limit: int | None = LIMIT
    note: Callable[[int, int], None] = lambda looked_at, of: None


@dataclass
class Report:
    """The findings, the possible repairs, and how much was examined."""

    findings: list[Finding] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    tasks: int = 0
    tasks_looked_at: int = 0
    keys: int | None = None
    keys_looked_at: int = 0
    is_partial: bool = False

    def of_level(self, level: Level) -> list[Finding]:
        """Return the findings of a level."""
        return [finding for finding in self.findings if finding.level is level]


def examine(order: Order) -> Flow[Report]:
    """Examine Redis, the servers and the queues; nothing is changed. ``QueueNotFoundError`` for an unknown queue."""
    report = Report()
    vitals = yield from read_vitals(order.now_ns)
    report.findings += check_redis(vitals)
    if vitals.number("loading"):
        return report
    report.findings += [check_clock(vitals), check_slow_commands(vitals)]
    is_cluster = not isinstance(vitals.cluster, Refused)
    listed = yield from ask(list_queues(), may_be_away=is_cluster)
    round_ = _Round(order, vitals, () if isinstance(listed, Refused) else listed, report)
    yield from round_.look_at_nodes()
    if isinstance(listed, Refused):
        report.findings.append(unseen("queues", listed.why))
        return report
    for queue in order.queues:
        if queue not in listed:
            raise QueueNotFoundError(queue)
    yield from round_.look_at_servers()
    yield from round_.look_at_queues()
    yield from round_.look_at_tasks()
    return report


class _Round:
    """The checks that depend on the results of earlier ones."""

    def __init__(self, order: Order, vitals: Vitals, listed: Sequence[str], report: Report) -> None:
        self._order = order
        self._vitals = vitals
        self._listed = listed
        self._is_cluster = not isinstance(vitals.cluster, Refused)
        self._report = report
        self._served_queues: frozenset[str] = frozenset()
        self._queues = list(order.queues) or [name for name in listed if is_sendable(name) and name.strip()]

    def _now_s(self) -> int:
        """Return the time of Redis' clock, since many machines write times into Redis."""
        skew_s = 0.0 if isinstance(self._vitals.skew_s, Refused) else self._vitals.skew_s
        return int(self._order.now_ns() / 1e9 + skew_s)

    def look_at_nodes(self) -> Flow[None]:
        """Look at the memory of each master of a cluster, since INFO came from only one of them."""
        if not self._is_cluster:
            return
        ranges = yield from ask(cluster_slots())
        if isinstance(ranges, Refused):
            return
        nodes = {span.nodes[0][0]: span.nodes[0] for span in ranges}
        found = []
        for tag, (_, host, port) in zip(node_tags(ranges), nodes.values(), strict=True):
            facts = yield from ask(node_memory(tag), may_be_away=True)
            if isinstance(facts, Refused) and facts.why != "no permission":
                self._report.findings.append(_silent(f"{host}:{port}", facts.why))
            elif not isinstance(facts, Refused) and (one := check_node_memory(self._vitals, f"{host}:{port}", facts)):
                found.append(one)
        if found:
            kept = [finding for finding in self._report.findings if finding.check != "memory"]
            self._report.findings[:] = [*kept, *found]

    def look_at_servers(self) -> Flow[None]:
        report, vitals = self._report, self._vitals
        registry = yield from attempt(read_registry(), may_be_away=self._is_cluster)
        if isinstance(registry, Refused):
            names = "server lists", "server clocks", "data formats"
            report.findings += [unseen(name, registry.why) for name in names]
            return
        passed_s = self._order.now_ns() / 1e9 - vitals.now_s
        lists = check_registry(registry, vitals)
        clocks = [check_server_clocks(registry, vitals, passed_s)]
        if clocks[0].count:
            yield Pause(RENEWED_S)
            again = yield from attempt(read_registry())
            if not isinstance(again, Refused):
                clocks = check_renewal(registry, again, vitals, passed_s, self._order.now_ns() / 1e9 - vitals.now_s)
        takeovers = yield from ask(read_takeovers(), may_be_away=self._is_cluster)
        taken = [] if isinstance(takeovers, Refused) else check_takeovers(takeovers, vitals)
        report.findings += [lists, *taken, *clocks]
        formats = yield from attempt(check_formats(registry), may_be_away=self._is_cluster)
        report.findings.append(unseen("data formats", formats.why) if isinstance(formats, Refused) else formats)
        if lists.count:
            report.repairs.append(forget_servers(lists.count, stale_before(vitals)))

    def look_at_queues(self) -> Flow[None]:
        report = self._report
        pulses = yield from self._pulses(self._queues, report)
        lonely = yield from self._unserved(pulses)
        servers = 0
        if lonely:
            yield Pause(SECOND_LOOK_S)
            again = yield from self._unserved((yield from self._pulses(list(lonely), Report())))
            lonely = {queue: count for queue, count in again.items() if queue in lonely}
        served = yield from attempt(self._served(), may_be_away=self._is_cluster)
        if isinstance(served, Refused):
            report.findings.append(unseen("served", served.why))
        else:
            self._served_queues, servers = served
            report.findings += check_served(lonely, len(pulses), servers)
        report.findings += check_paused(pulses, self._now_s())
        report.findings += check_archives(pulses)
        handlers = yield from attempt(check_handlers(list(pulses)), may_be_away=self._is_cluster)
        report.findings += [unseen("task types", handlers.why)] if isinstance(handlers, Refused) else handlers
        lanes = yield from attempt(check_lanes(list(pulses)), may_be_away=self._is_cluster)
        report.findings += [unseen("lanes", lanes.why)] if isinstance(lanes, Refused) else lanes
        report.tasks = sum(sum(pulse.stats.sizes.values()) for pulse in pulses.values())

    def _pulses(self, queues: Sequence[str], report: Report) -> Flow[dict[str, Pulse]]:
        pulses = {}
        for queue in queues:
            pulse = yield from attempt(read_pulse(queue, self._now_s()), may_be_away=self._is_cluster)
            if isinstance(pulse, Refused):
                report.findings.append(unseen("queue", pulse.why, queue))
            else:
                pulses[queue] = pulse
        return pulses

    def _unserved(self, pulses: Mapping[str, Pulse]) -> Flow[dict[str, dict[str, int]]]:
        served = yield from attempt(self._served(), may_be_away=self._is_cluster)
        return {} if isinstance(served, Refused) else unserved(pulses, served[0])

    def _served(self) -> Flow[tuple[frozenset[str], int]]:
        """Return the queues from which servers take tasks, and the number of live servers."""
        registry: list[RegistryEntry] = yield from read_registry()
        servers = yield from read_servers(
            [one.key for one in registry if one.listed_in == "servers" and one.ttl_ms != -2]
        )
        return frozenset().union(*(server.queues for server in servers if server.is_active)), len(servers)

    def look_at_tasks(self) -> Flow[None]:
        report, order = self._report, self._order
        nodes = (yield from find_nodes()) if self._is_cluster else ("fastq",)
        scope = Scope(
            order.queues,
            order.limit,
            self._now_s,
            lambda looked_at: order.note(looked_at, report.tasks),
            nodes,
            self._served_queues,
        )
        survey = Survey()
        yield from self._survey(survey, scope, self._queues, keys_too=True)
        report.keys = yield from self._count_keys()
        report.tasks_looked_at, report.keys_looked_at = survey.ids_looked_at, survey.keys_looked_at
        report.is_partial = survey.is_partial
        if survey.suspects:
            yield Pause(SECOND_LOOK_S)
            self._listed = yield list_queues()  # a queue may have been created meanwhile
            again = Survey(among=survey.suspects)
            queues = {suspect.queue for suspect in survey.suspects if suspect.kind not in KEY_KINDS}
            keys_too = any(suspect.kind in KEY_KINDS for suspect in survey.suspects)
            yield from self._survey(again, scope, queues, keys_too=keys_too)
            again.refused.update(survey.refused)
            survey = again
        report.findings += judge(survey)
        report.repairs += repairs_of(survey, self._now_s)

    def _survey(self, survey: Survey, scope: Scope, queues: Collection[str], *, keys_too: bool) -> Flow[None]:
        for queue in sorted(queues):
            done: Any = yield from attempt(survey_queue(queue, survey, scope), may_be_away=self._is_cluster)
            if isinstance(done, Refused):
                survey.refused["tasks", queue] = done.why
        if keys_too:
            done = yield from attempt(survey_keys(self._listed, survey, scope), may_be_away=self._is_cluster)
            if isinstance(done, Refused):
                survey.refused["tasks", ""] = done.why

    def _count_keys(self) -> Flow[int | None]:
        count = yield from ask(count_keys())
        return None if isinstance(count, Refused) or not isinstance(self._vitals.cluster, Refused) else count


def _silent(address: str, why: str) -> Finding:
    return Finding(
        "node",
        Level.PROBLEM,
        f"{address} does not answer: {why}",
        "its queues stand still, and nothing of them was checked",
        "see its log and that of its replica, and CLUSTER NODES",
    )
