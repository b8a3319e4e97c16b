"""Schedulers of both sides, and the entries that both are given."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from fastq import FastqError, Scheduler, Task
from tests.interop.differential.go_side import options_for_go
from tests.interop.differential.goal import HOUR_S, OK
from tests.interop.peer import SECOND_NS, GoPeer
from tests.interop.records import PeerError

TICKS: Final = "@every 1s"
REST: Final = ("@every 1h", "0 6 * * *", "CRON_TZ=Europe/Paris 30 4 1 * *", "@yearly", "0 0 30 2 *")
BAD: Final = ("", "* * * *", "61 * * * *", "@every x", "@often", "0 6 * * 7", "TZ=Nowhere * * * * *")
OPTIONS: Final[Sequence[Mapping[str, Any]]] = (
    {},
    {"queue": "low"},
    {"max_retry": 3},
    {"timeout": 20},
    {"retention": HOUR_S},
    {"group": "g"},
    {"process_in": HOUR_S},
    {"unique": HOUR_S},
    {"queue": "low", "max_retry": 0, "timeout": 90, "unique": HOUR_S},
)
ORDER: Final = ("queue", "task_id", "max_retry", "timeout", "unique", "process_in", "retention", "group")
"""In which the peer gives them to asynq, and so both list them."""
ENDINGS: Final = {OK: 42, "DuplicateTaskError": 5, "TaskIDConflictError": 5, "": 8}
"""How each tick of an entry ends, or none comes, and how many entries of it a round has."""


@dataclass(frozen=True)
class Wish:
    """An entry to register; ``ending`` is how its first tick ends, "" if there is none."""

    name: str
    spec: str
    ending: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def payload(self) -> bytes:
        return self.name.encode()

    @property
    def queue(self) -> str:
        return str(self.options.get("queue", "default"))


def wishes(rng: Random) -> Iterator[Wish]:
    """Make a round's entries, in any order."""
    endings = [ending for ending, count in ENDINGS.items() for _ in range(count)]
    rng.shuffle(endings)
    for number, ending in enumerate(endings):
        name, options = f"e{number}", dict(rng.choice(OPTIONS))
        if ending == "DuplicateTaskError":
            options["unique"] = HOUR_S
        elif ending == "TaskIDConflictError" or rng.random() < 0.5:
            options["task_id"] = name
        if ending == "TaskIDConflictError":
            options.pop("unique", None)  # Go leaves a lock then, at each tick; the other sequences have that
        options = {key: options[key] for key in ORDER if key in options}
        yield Wish(name, TICKS if ending else rng.choice(REST), ending, options)


class GoScheduler:
    """A scheduler in the peer."""

    def __init__(self, peer: GoPeer) -> None:
        self._peer = peer
        self.ids: dict[str, str] = {}

    def start(self, first: Sequence[Wish]) -> None:
        entries = [self._entry(wish) for wish in first]
        ids = self._peer.request("scheduler_start", name="s", location="UTC", heartbeat_ns=SECOND_NS, entries=entries)
        self.ids = dict(zip([wish.name for wish in first], ids, strict=True))

    def _entry(self, wish: Wish) -> Mapping[str, Any]:
        task = {"type": "report", "payload": wish.payload, "options": options_for_go(wish.options)}
        return {"spec": wish.spec, "task": task}

    def register(self, wish: Wish) -> str:
        try:
            self.ids[wish.name] = self._peer.request("scheduler_register", name="s", entry=self._entry(wish))
        except PeerError:
            return "CronSpecError"  # asynq looks at nothing else then
        return OK

    def unregister(self, name: str) -> str:
        try:
            self._peer.request("scheduler_unregister", name="s", entry_id=self.ids.get(name, "none"))
        except PeerError as error:
            return "SchedulerEntryNotFoundError" if "no scheduler entry found" in error.text else error.text
        return OK

    def shutdown(self) -> None:
        self._peer.request("scheduler_shutdown", name="s")


class OurScheduler:
    """A scheduler of fastq's."""

    def __init__(self, url: str) -> None:
        self._scheduler = Scheduler(url, heartbeat_interval=1)
        self.ids: dict[str, str] = {}

    def start(self, first: Sequence[Wish]) -> None:
        for wish in first:
            self.register(wish)
        self._scheduler.start()

    def register(self, wish: Wish) -> str:
        try:
            self.ids[wish.name] = self._scheduler.register(wish.spec, Task("report", wish.payload), **wish.options)
        except FastqError as error:
            return type(error).__name__
        return OK

    def unregister(self, name: str) -> str:
        try:
            self._scheduler.unregister(self.ids.get(name, "none"))
        except FastqError as error:
            return type(error).__name__
        return OK

    def shutdown(self) -> None:
        self._scheduler.shutdown()
