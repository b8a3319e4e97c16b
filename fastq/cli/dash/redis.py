"""Data about Redis, and its load and memory since the dashboard was started."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widget import Widget

from fastq.cli.dash.cells import spark
from fastq.cli.dash.desk import Desk
from fastq.cli.dash.view import Hint, Line, View
from fastq.cli.stats import cluster_pairs, redis_pairs
from fastq.errors import BrokerAuthError, FastqError
from fastq.text.human import clean, number, share, size

KEPT: Final = 60
SPARK: Final = 30
MORE: Final = (
    ("Role", "role"),
    ("Memory policy", "maxmemory_policy"),
    ("Fragmentation", "mem_fragmentation_ratio"),
    ("Blocked clients", "blocked_clients"),
    ("Evicted keys", "evicted_keys"),
    ("Expired keys", "expired_keys"),
    ("Refused clients", "rejected_connections"),
    ("Last save", "rdb_last_bgsave_status"),
    ("Append-only file", "aof_enabled"),
)


class RedisView(View):
    """The state of Redis."""

    PLACE = "Redis"
    HINTS: ClassVar[Sequence[Hint]] = (Hint("F5", "look now"), Hint("Esc", "back"))

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._facts: Mapping[str, str] | None = None
        self._refused = False
        self._commands: deque[float] = deque(maxlen=KEPT)
        self._memory: deque[float] = deque(maxlen=KEPT)
        self._text = Line(id="task")

    def body(self) -> Iterable[Widget]:
        """Lay out a scrolled text."""
        return (VerticalScroll(self._text, id="scroll"),)

    async def look(self) -> None:
        """Read INFO."""
        inspector, is_cluster = self.desk.inspector, self.desk.is_cluster
        self._facts = facts = await (inspector.cluster_info() if is_cluster else inspector.redis_info())
        self._refused = False
        for kept, name in ((self._commands, "instantaneous_ops_per_sec"), (self._memory, "used_memory")):
            if facts.get(name, "").isdecimal():
                kept.append(float(facts[name]))

    def bears(self, error: FastqError) -> bool:
        """Accept an error that says that the Redis user may not read INFO."""
        self._refused = isinstance(error, BrokerAuthError)
        return self._refused

    def draw(self) -> None:
        """Show the last INFO."""
        if self._refused:
            self._text.say(Text(" The Redis user may not read it.", style="yellow"))
        elif self._facts is not None:
            self._text.say(self._written(self._facts))

    def _written(self, facts: Mapping[str, str]) -> Text:
        text = Text()
        pairs = cluster_pairs(facts) if self.desk.is_cluster else [*redis_pairs(facts), *_more(facts)]
        for name, value in pairs:
            text.append(f" {name:<17}", style="dim").append(f"{value}\n")
        if self._commands:
            text.append(f" {'Commands/s':<17}", style="dim").append(f"{number(round(self._commands[-1])):<9}")
            text.append(f" {spark(self._commands, SPARK)}\n", style="green")
        if self._memory:
            text.append(f" {'Memory, lately':<17}", style="dim").append(f"{size(int(self._memory[-1])):<9}")
            text.append(f" {spark(self._memory, SPARK)}\n", style="cyan")
        return text


def _more(facts: Mapping[str, str]) -> list[tuple[str, str]]:
    most = facts.get("maxmemory", "")
    pairs = [("Memory limit", size(int(most)) if most.isdecimal() and int(most) else "none")]
    hits, misses = (facts.get(f"keyspace_{name}", "") for name in ("hits", "misses"))
    if hits.isdecimal() and misses.isdecimal():
        pairs.append(("Keys found", share(int(hits), int(hits) + int(misses))))
    pairs += [(title, clean(facts[name])) for title, name in MORE if name in facts]
    databases = [(name, text) for name, text in facts.items() if name.startswith("db") and name[2:].isdecimal()]
    return pairs + [(name, clean(text)) for name, text in databases]
