"""Signs of life, by which fastq's servers know within seconds that one of them is gone.

Each server gives a sign every two seconds, under the mark of its leases. Two servers that have drawn the same mark
share an entry. It counts as alive while either of them is.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

import orjson

from fastq.broker.operation import Operation, scripted
from fastq.broker.operations.lease import Owner
from fastq.wire import keys

FORGET_S: Final = 300
"""A server is forgotten after this time without a sign; its leases have long ended then."""
FORMAT: Final = 1
MOST: Final = 2**40
MOST_TAKEOVERS: Final = 20
TAKEOVERS_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts that a server gives with its sign, so that others can prove that it is gone.

    ``client_id`` names the connection that gave the sign, in the run ``run_id`` of Redis; both are None if not known.
    ``boot``, ``namespace``, ``pid`` and ``started`` name its process; ``boot`` is empty on a system without boot ids.
    The scores of its leases are made from its wall clock, ``wall_s``, and the duration of a lease, ``lease_s``.
    """

    name: str
    queues: tuple[str, ...]
    client_id: int | None
    run_id: str | None
    host: str
    boot: str
    namespace: str
    pid: int
    started: str
    wall_s: float
    lease_s: int

    def encode(self) -> bytes:
        """Return the JSON."""
        return orjson.dumps({"format": FORMAT} | {one.name: getattr(self, one.name) for one in fields(self)})

    @classmethod
    def decode(cls, data: bytes) -> "ServerFacts | None":
        """Read the JSON; None if its format is unknown, or a value is impossible."""
        try:
            fields = orjson.loads(data)
            if fields.pop("format") != FORMAT:
                return None
            facts = cls(**{name: fields[name] for name in cls.__slots__} | {"queues": tuple(fields["queues"])})
            is_sound = 0 < facts.pid < 2**31 and 0 <= facts.wall_s < MOST and 0 < facts.lease_s <= FORGET_S
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        return facts if is_sound else None


class SilentServer(NamedTuple):
    """A server that has given no sign for some seconds."""

    owner: Owner
    silent_s: float
    facts: ServerFacts
    data: bytes
    """The encoded facts, as they were found."""


class Signed(NamedTuple):
    """How many servers there are, Go's included, and the silent fastq servers, the longest silent first."""

    servers: int
    silent: list[SilentServer]


def sign(owner: Owner, facts: ServerFacts, silent_s: float, most: int) -> Operation[Signed]:
    """Note that a server is alive; return the other servers without a sign for ``silent_s``, by Redis' clock."""
    return scripted(
        "sign",
        (keys.signs(), keys.signers(), keys.all_servers()),
        (str(owner), facts.encode(), int(silent_s * 1000), most, FORGET_S * 1000, int(facts.wall_s)),
        _parse_signed,
        idempotent=True,
    )


def _parse_signed(reply: list[Any]) -> Signed:
    return Signed(reply[0], list(_silent(zip(reply[1::3], reply[2::3], reply[3::3], strict=True))))


def _silent(found: Iterable[tuple[bytes, int, bytes]]) -> Iterable[SilentServer]:
    for mark, silent_ms, data in found:
        facts = ServerFacts.decode(data)
        with suppress(ValueError):
            if facts is not None:
                yield SilentServer(Owner(float(mark)), silent_ms / 1000, facts, data)


def forget_signer(silent: SilentServer) -> Operation[bool]:
    """Forget a silent server; False if it has given a sign meanwhile."""
    return scripted(
        "forget_signer",
        (keys.signs(), keys.signers()),
        (str(silent.owner), silent.data),
        lambda reply: reply == 1,
        idempotent=True,
    )


def withdraw_sign(owner: Owner) -> tuple[Operation[int], ...]:
    """Forget the sign of a server that shuts down properly."""
    return (
        Operation("ZREM", (keys.signs(),), (str(owner),), int, idempotent=True),
        Operation("HDEL", (keys.signers(),), (str(owner),), int, idempotent=True),
    )


def identify() -> tuple[Operation[int], Operation[str]]:
    """Return the operations that read the client id of their own connection, and the run id of Redis."""
    return (
        Operation("CLIENT", (), ("ID",), int, idempotent=True),
        Operation("INFO", (), ("server",), _run_id, idempotent=True),
    )


def _run_id(reply: bytes) -> str:
    facts = dict(line.partition(b":")[::2] for line in bytes(reply).splitlines())
    return facts.get(b"run_id", b"").decode(errors="replace")


def connected(*client_ids: int) -> Operation[set[int]]:
    """Return which clients have a connection to Redis. Only the node that gave out these ids can answer."""
    return Operation("CLIENT", (), ("LIST", "ID", *client_ids), _client_ids, idempotent=True)


def _client_ids(reply: bytes) -> set[int]:
    words = (line.partition(b" ")[0].removeprefix(b"id=") for line in bytes(reply).splitlines())
    return {int(word) for word in words if word.isdigit()}


class Takeover(NamedTuple):
    """Who took how many tasks of a queue from whom, when (Unix seconds), and why."""

    at_s: float
    taker: str
    server: str
    why: str
    queue: str
    tasks: int


def note_takeover(takeover: Takeover) -> tuple[Operation[Any], ...]:
    """Keep a takeover for inspectors, with the last ones before it, for a day."""
    key = (keys.takeovers(),)
    return (
        Operation("LPUSH", key, (orjson.dumps([*takeover]),)),
        Operation("LTRIM", key, (0, MOST_TAKEOVERS - 1), idempotent=True),
        Operation("EXPIRE", key, (TAKEOVERS_S,), idempotent=True),
    )


def read_takeovers() -> Operation[list[Takeover]]:
    """Read the last takeovers, the latest first."""
    return Operation("LRANGE", (keys.takeovers(),), (0, MOST_TAKEOVERS - 1), _parse_takeovers, idempotent=True)


def _parse_takeovers(reply: list[bytes]) -> list[Takeover]:
    found = []
    for data in reply:
        with suppress(ValueError, TypeError):
            found.append(Takeover(*orjson.loads(data)))
    return found
