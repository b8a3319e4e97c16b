"""Why a run may have been repeated: the fault that struck its server or child between its beginning and its ack.

A fault explains only what it can do. The death of a child does not touch what had already ended in it; a stop that is
asked for touches only what has not returned; what is cut off or frozen for less than the lease loses nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from fastq.broker.transport.connection import READ_TIMEOUT_S
from fastq.server.base.outage import MAX_BACKOFF_S
from fastq.server.base.timing import Timing
from tests.chaos.evidence import Life
from tests.chaos.journal import Strike
from tests.chaos.ledger import Run
from tests.chaos.plan import Kind
from tests.chaos.producer import Enqueued, Entry

_NS: Final = 1_000_000_000
ACK_S: Final = 1.0
"""How long after its end a run may wait for its ack where nothing is wrong, on a machine that has other work, too."""

DYING_NS: Final = _NS
"""How long the children of a killed server or preloader may go on: until the kernel, or the server, has noticed."""

STRUCK_NS: Final = _NS // 20
"""How long a child that was sent SIGKILL may go on itself: it is on another core."""

THAW_NS: Final = _NS // 2
"""How long a thawed server's children may begin what lay in their rings before the server has taken it back."""

_REDIS: Final = {Kind.RESTART_REDIS, Kind.KILL_REDIS, Kind.FREEZE_REDIS, Kind.FREEZE_REDIS_LONG, Kind.OUTAGE}
_SILENT: Final = {Kind.FREEZE_REDIS, Kind.FREEZE_REDIS_LONG, Kind.OUTAGE, Kind.NET_HALF_OPEN}
_FROZEN: Final = {Kind.FREEZE_SERVER, Kind.FREEZE_FAMILY, Kind.FREEZE_SHORT}
_NET: Final = {Kind.NET_REFUSE, Kind.NET_HALF_OPEN, Kind.NET_DELAY, Kind.NET_CUT, Kind.NET_DROP}
# A young child that has not worked yet is not told from that of the hooks.
_DEADLY: Final = {Kind.KILL_CHILD, Kind.KILL_CHILDREN, Kind.KILL_PRELOADER, Kind.KILL_HOOKS, Kind.UNREAD_STDERR}
_OF_CHILDREN: Final = _DEADLY - {Kind.KILL_PRELOADER}  # what ran below it runs again, uncharged
_SHORT: Final = {Kind.FDS_SERVER, Kind.FDS_CHILD}
_STOPS: Final = {Kind.STOP_SERVER, Kind.UNREAD_STOP}


LEASE_LOST: Final = "its lease was lost in an outage"
BEGAN_LATE: Final = "a server that had lost its lease began it late"


class Span(NamedTuple):
    """A stretch of time in monotonic nanoseconds."""

    began_ns: int
    ended_ns: int

    def meets(self, began_ns: int, ended_ns: int) -> bool:
        return self.began_ns <= ended_ns and began_ns <= self.ended_ns


def merged(spans: Iterable[Span]) -> list[Span]:
    """Join the spans that touch."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.began_ns <= joined[-1].ended_ns:
            joined[-1] = Span(joined[-1].began_ns, max(joined[-1].ended_ns, span.ended_ns))
        else:
            joined.append(span)
    return joined


class Alibis:
    """Know what struck whom, and for how long each server was cut off from its leases."""

    def __init__(self, strikes: Sequence[Strike], lives: Mapping[int, Life], timing: Timing) -> None:
        self._strikes = strikes
        self._lives = lives
        self._until_recovered_s = timing.lease_s + timing.recover_grace_s + timing.recoverer_interval_s
        self._until_recovered_s += timing.settle_s + MAX_BACKOFF_S
        servers = {life.server for life in lives.values()} | {-1}
        self._outages = {server: self._without_redis(server) for server in servers}
        # Redis is away for longer than the leases, but all servers live: nobody may take anything from another.
        in_doubt = {server: self._without_redis(server, {Kind.OUTAGE}) for server in servers}
        # A lease was last extended up to a heartbeat ago, its end is rounded down to a second, and machines have other
        # work; but until the grace is over, too, nobody takes the task.
        self._least_ns = int((timing.lease_s + timing.recover_grace_s - timing.heartbeat_interval_s - 1.5) * _NS)
        # How many tasks the children that each strike has killed may have had in hand.
        self._in_hand = [(one, len(one.pids)) for one in strikes if one.kind in _OF_CHILDREN]
        self._losses = {
            server: [
                Span(span.began_ns, span.ended_ns + THAW_NS)
                for span in spans
                if span.ended_ns - span.began_ns >= self._least_ns
            ]
            for server, spans in in_doubt.items()
        }

    def _without_redis(self, server: int, but: Collection[Kind] = ()) -> list[Span]:
        """Return when a server had no Redis; without descriptors it does not come by a new connection."""
        spans = merged(_outage(one) for one in self._strikes if one.kind not in but and _hits(one, server))
        short = [
            Span(one.began_ns, one.ended_ns + int(MAX_BACKOFF_S * _NS))
            for one in self._strikes
            if one.kind is Kind.FDS_SERVER and one.server == server
        ]
        return merged(spans + [span for span in short if any(span.meets(*outage) for outage in spans)])

    def of(self, run: Run, following_ns: int, next_on_child_ns: int | None) -> Kind | str | None:
        """Return what explains that a task ran again at ``following_ns``; None if nothing does.

        ``next_on_child_ns`` is when the same process began its next task: the result of this one was out by then.
        """
        server = self._lives[run.generation].server
        until_ns = min(following_ns, self._unacked_until(run, server, following_ns))
        for strike in self._strikes:
            if strike.generation == run.generation and strike.began_ns <= until_ns:
                if strike.kind in _DEADLY and _kills(strike, run, next_on_child_ns):
                    return strike.kind
                if strike.kind in _SHORT and _is_short(strike, run, until_ns):
                    return strike.kind
                if strike.kind is Kind.KILL_SERVER and run.began_ns <= strike.began_ns + DYING_NS:
                    return strike.kind
        if any(span.meets(run.began_ns, until_ns) for span in self._losses[server]):
            return LEASE_LOST
        stops = (one for one in self._strikes if one.kind in _STOPS and one.generation == run.generation)
        if any(one.began_ns <= until_ns and self._is_stopped(one, run, server) for one in stops):
            return Kind.STOP_SERVER
        return None

    def of_late(self, run: Run, following: Run) -> str | None:
        """Return why a server began a task that another had run: it lay in a ring while the lease on it was lost.

        The other took the task no sooner than the lease can have ended. The server has had it since before that, and
        its children went on before it could take the task back.
        """
        life = self._lives[following.generation]
        for span in self._losses[life.server]:
            held = life.began_ns <= span.began_ns and span.began_ns + self._least_ns <= run.began_ns
            if held and run.generation != following.generation and span.meets(following.began_ns, following.began_ns):
                return BEGAN_LATE
        return None

    def of_size(self, run: Run) -> Kind | None:
        """Return why a large result may not have left its child: it had no descriptor for it."""
        short = (one for one in self._strikes if one.kind is Kind.FDS_CHILD and run.pid in one.pids)
        meets = (Span(one.began_ns, one.ended_ns).meets(run.began_ns, run.ended_ns or run.began_ns) for one in short)
        return Kind.FDS_CHILD if any(meets) else None

    def of_time(self, run: Run) -> str | None:
        """Return why a run that has a timeout may have ended by it: its process stood still."""
        frozen = (one for one in self._strikes if one.kind in (Kind.FREEZE_CHILD, Kind.FREEZE_FAMILY))
        of_child = (one for one in frozen if one.generation == run.generation and (not one.pids or run.pid in one.pids))
        ended_ns = run.ended_ns if run.ended_ns is not None else (1 << 63) - 1
        if not run.returned and any(Span(one.began_ns, one.ended_ns).meets(run.began_ns, ended_ns) for one in of_child):
            return "its time was over while its process stood still"
        return None

    def of_unseen(self, entry: Entry, first: Run) -> Kind | None:
        """Return why a plain task was charged with an attempt before its first run.

        It begins when its child takes it. A child that is killed between that and the first line of the handler leaves
        no other trace. Each child has one such task at most.
        """
        if first.retried != 1 or entry.order.job.is_async:
            return None
        for at, (strike, tasks) in enumerate(self._in_hand):
            if tasks and entry.began_ns <= strike.ended_ns and strike.began_ns <= first.began_ns:
                self._in_hand[at] = strike, tasks - 1
                return strike.kind
        return None

    def of_enqueue(self, entry: Entry) -> str | None:
        """Return why a task may have been enqueued twice."""
        is_in_doubt = entry.said is Enqueued.MAYBE
        if is_in_doubt or any(span.meets(entry.began_ns, entry.ended_ns) for span in self._outages[-1]):
            return "the reply of its enqueue was lost"
        return None

    def of_unrun(self, failed_s: float) -> str | None:
        """Return why a last attempt that was recovered at that time (monotonic) was used up without a run."""
        window = Span(int((failed_s - self._until_recovered_s) * _NS), int(failed_s * _NS))
        if any(window.meets(*span) for spans in self._losses.values() for span in spans):
            return "archived without a run: its lease was lost in an outage"
        if any(window.meets(one.began_ns, one.began_ns) for one in self._strikes if one.kind is Kind.KILL_SERVER):
            return "archived without a run: its server was killed while it waited there"
        return None

    def _unacked_until(self, run: Run, server: int, following_ns: int) -> int:
        """Return until when the ack may have been outstanding: through every outage that it ran into."""
        if run.ended_ns is None:
            return following_ns
        until_ns = run.ended_ns + int(ACK_S * _NS)
        for strike in self._strikes:
            # A child that is frozen on the way from its handler's end to its result gives that when it goes on.
            if strike.kind is Kind.FREEZE_CHILD and run.pid in strike.pids and strike.began_ns <= until_ns:
                until_ns = max(until_ns, strike.ended_ns + int(ACK_S * _NS))
        for span in self._outages[server]:
            if span.meets(run.began_ns, until_ns):
                until_ns = max(until_ns, span.ended_ns + int(ACK_S * _NS))
        return until_ns

    def _is_stopped(self, strike: Strike, run: Run, server: int) -> bool:
        """Return whether a stop may have interrupted a run, or kept its ack from being written."""
        if strike.ended_ns and strike.ended_ns < run.began_ns:
            return False
        if not run.returned:
            return True
        ended_ns = self._lives[run.generation].ended_ns or strike.ended_ns
        return any(span.meets(strike.began_ns, ended_ns) for span in self._outages[server])


def _is_short(strike: Strike, run: Run, until_ns: int) -> bool:
    """Return whether a lack of descriptors may have affected a run.

    A handler may fail for it. A result that the main process cannot take costs the child its life.
    """
    if run.pid in strike.pids:
        return not run.returned and Span(strike.began_ns, strike.ended_ns).meets(run.began_ns, run.ended_ns or until_ns)
    return strike.kind is Kind.FDS_SERVER and Span(strike.began_ns, strike.ended_ns).meets(run.began_ns, until_ns)


def _kills(strike: Strike, run: Run, next_on_child_ns: int | None) -> bool:
    if strike.pids and run.pid not in strike.pids:
        return False
    # It was struck at some time between the two, as the bench may have been interrupted there.
    struck_ns = max(strike.began_ns, strike.ended_ns)
    dying_ns = DYING_NS if strike.kind is Kind.KILL_PRELOADER else STRUCK_NS
    return run.began_ns <= struck_ns + dying_ns and (next_on_child_ns is None or strike.began_ns <= next_on_child_ns)


def _hits(strike: Strike, server: int) -> bool:
    if strike.kind in _REDIS:
        return True
    return strike.server == server and strike.kind in _NET | _FROZEN


def _outage(strike: Strike) -> Span:
    """Return for how long a server may have been without Redis: the fault, the wait for a reply, the last back-off."""
    ended_ns = strike.ended_ns or strike.began_ns
    if strike.kind in _FROZEN:
        return Span(strike.began_ns, ended_ns)
    length_s = (ended_ns - strike.began_ns) / _NS
    tail_s = min(MAX_BACKOFF_S, 2 * length_s) + ACK_S / 2
    if strike.kind in _SILENT:
        tail_s += READ_TIMEOUT_S
    return Span(strike.began_ns, ended_ns + int(tail_s * _NS))
