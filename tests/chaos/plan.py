"""The plan: which fault strikes what, when, and for how long; made from a seed, the same for the same seed and size.

What a fault then meets is up to the moment. Kinds are dealt from a deck, so that every kind comes in a short run, too.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The kinds of faults."""

    KILL_CHILD = "SIGKILL a child"
    KILL_CHILDREN = "SIGKILL all children of a server"
    KILL_PRELOADER = "SIGKILL a preloader"
    KILL_HOOKS = "SIGKILL a hook child"
    FREEZE_CHILD = "SIGSTOP a child for longer than the lease"
    KILL_SERVER = "SIGKILL a server"
    FREEZE_SERVER = "SIGSTOP a server for longer than its lease"
    FREEZE_FAMILY = "SIGSTOP a server and its children for longer"
    FREEZE_SHORT = "SIGSTOP a server for less than its lease"
    FDS_SERVER = "let a server open no descriptor"
    FDS_CHILD = "let a child open no descriptor"
    UNREAD_STDERR = "read a server's stderr no more, SIGKILL a child"
    UNREAD_STOP = "read a server's stderr no more, SIGTERM it"
    STOP_SERVER = "SIGTERM a server, start it again"
    RESTART_REDIS = "restart Redis"
    KILL_REDIS = "SIGKILL Redis"
    FREEZE_REDIS = "SIGSTOP Redis"
    FREEZE_REDIS_LONG = "SIGSTOP Redis for longer than the leases"
    NET_DROP = "reset all connections"
    NET_REFUSE = "refuse connections"
    NET_HALF_OPEN = "let connections fall silent"
    NET_DELAY = "delay every packet"
    NET_CUT = "cut connections after n bytes"
    OUTAGE = "SIGSTOP Redis for long, with nothing else wrong"


_DECK = {
    Kind.KILL_CHILD: 5,
    Kind.KILL_CHILDREN: 1,
    Kind.KILL_PRELOADER: 1,
    Kind.KILL_HOOKS: 1,
    Kind.FREEZE_CHILD: 1,
    Kind.KILL_SERVER: 2,
    Kind.FREEZE_SERVER: 2,
    Kind.FREEZE_FAMILY: 1,
    Kind.FREEZE_SHORT: 1,
    Kind.FDS_SERVER: 1,
    Kind.FDS_CHILD: 1,
    Kind.UNREAD_STDERR: 1,
    Kind.UNREAD_STOP: 1,
    Kind.STOP_SERVER: 1,
    Kind.RESTART_REDIS: 1,
    Kind.KILL_REDIS: 1,
    Kind.FREEZE_REDIS: 1,
    Kind.FREEZE_REDIS_LONG: 1,
    Kind.NET_DROP: 3,
    Kind.NET_REFUSE: 1,
    Kind.NET_HALF_OPEN: 1,
    Kind.NET_DELAY: 1,
    Kind.NET_CUT: 3,
}

NET = frozenset(kind for kind in Kind if kind.name.startswith("NET_"))


@dataclass(frozen=True)
class Scale:
    """What the lengths of faults depend on, in seconds; ``every_s`` is the mean pause between two.

    ``outage_s`` is the length of the outage after all else, 0 for none.
    """

    servers: int
    lease_s: int
    grace_s: int
    every_s: float
    for_s: float
    outage_s: float = 0.0


@dataclass(frozen=True)
class Fault:
    """One planned fault: ``server`` -1 is the producer's connection; ``pick`` chooses among what exists then."""

    number: int
    at_s: float
    kind: Kind
    server: int
    pick: int
    for_s: float
    n_bytes: int


def kinds_named(words: str) -> list[Kind]:
    """Return the kinds whose names have one of some comma-separated words; all without a word."""
    wanted = [word.strip().upper() for word in words.split(",") if word.strip()]
    found = [kind for kind in Kind if not wanted or any(word in kind.name for word in wanted)]
    if not found:
        raise ValueError(f"no fault has a name with {words!r}: {', '.join(kind.name for kind in Kind)}")
    return found


def make_plan(seed: int, scale: Scale, kinds: Sequence[Kind] = tuple(Kind)) -> list[Fault]:
    """Deal faults of some kinds until the time is over."""
    rng = random.Random(f"plan {seed}")
    deck: list[Kind] = []
    plan: list[Fault] = []
    at_s = scale.every_s
    dealt = [kind for kind in kinds if kind in _DECK]
    while dealt and at_s < scale.for_s:
        if not deck:
            deck = [kind for kind in dealt for _ in range(_DECK[kind])]
            if not plan:
                deck = list(dealt)  # one of each first
            rng.shuffle(deck)
        kind = deck.pop()
        plan.append(
            Fault(
                number=len(plan),
                at_s=round(at_s, 3),
                kind=kind,
                server=rng.randrange(-1 if kind in NET else 0, scale.servers),
                pick=rng.randrange(1 << 16),
                for_s=round(_length_s(kind, scale, rng), 3),
                n_bytes=int(10 ** rng.uniform(0, 4.5)),
            )
        )
        at_s += rng.uniform(0.1, 1.9) * scale.every_s
    if Kind.OUTAGE in kinds and scale.outage_s:
        plan.append(Fault(len(plan), scale.for_s, Kind.OUTAGE, server=0, pick=0, for_s=scale.outage_s, n_bytes=0))
    return plan


def _length_s(kind: Kind, scale: Scale, rng: random.Random) -> float:
    beyond = scale.lease_s + scale.grace_s
    match kind:
        case Kind.FREEZE_SERVER | Kind.FREEZE_FAMILY | Kind.FREEZE_CHILD | Kind.FREEZE_REDIS_LONG | Kind.UNREAD_STDERR:
            return beyond * rng.uniform(1.05, 1.4)
        case Kind.FDS_SERVER | Kind.FDS_CHILD:
            return 10.0
        case Kind.UNREAD_STOP:
            return 20.0  # at most: until it has ended
        case Kind.FREEZE_SHORT:
            return min(8.0, scale.lease_s * rng.uniform(0.05, 0.4))
        case Kind.KILL_SERVER | Kind.STOP_SERVER:
            return rng.uniform(0.0, 1.5)
        case Kind.RESTART_REDIS | Kind.KILL_REDIS | Kind.FREEZE_REDIS:
            return rng.uniform(0.05, min(3.0, 0.3 * scale.lease_s))
        case Kind.NET_REFUSE | Kind.NET_HALF_OPEN:
            return rng.uniform(0.1, min(3.0, 0.4 * scale.lease_s))
        case Kind.NET_DELAY | Kind.NET_CUT:
            return rng.uniform(0.3, min(3.0, 0.7 * scale.lease_s))
        case _:
            return 0.0
