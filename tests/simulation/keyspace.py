"""What Redis has, read past the clients; it takes no simulated time."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from fastq.wire.history import ALL_TYPES, OUTCOMES, decode_records, sum_of
from tests.simulation.happenings import Counted, Left
from tests.simulation.sites import Site

QUEUES: Final = {"default": 2, "low": 1}
OF_LANES: Final = "low"
STATES: Final = ("pending", "active", "scheduled", "retry", "archived", "completed")


class Keyspace:
    """The keys of a site."""

    def __init__(self, site: Site, lanes: Sequence[str] = ()) -> None:
        self._site, self._lanes = site, lanes

    def lease(self, queue: str, task_id: str) -> tuple[float | None, float]:
        """Return whose a lease is, by the mark behind the point of its score (None if there is none), and its end."""
        score = self._site.ask("ZSCORE", f"asynq:{{{queue}}}:lease", task_id)
        return (None, 0.0) if score is None else (float(score) % 1, float(score))

    def scores(self, key: str) -> list[str]:
        """Return the scores of a sorted set."""
        return list(self._site.ask("ZRANGE", key, "0", "-1", "WITHSCORES")[1::2])

    def has_group(self, group: str) -> bool:
        """Return whether tasks of a group wait, or are in a set of which no task has been made."""
        counts: list[tuple[str, ...]] = []
        for queue in QUEUES:
            counts.append(("ZCARD", f"asynq:{{{queue}}}:g:{group}"))
            counts.append(("ZCOUNT", f"asynq:{{{queue}}}:aggregation_sets", "-inf", "(inf"))
        return any(self._site.ask_all(counts))

    def has_again(self) -> bool:
        """Return whether a key is to be run once more."""
        return any(self._site.ask_all([("EXISTS", f"asynq:{{{queue}}}:again") for queue in QUEUES]))

    def places(self) -> dict[str, list[str]]:
        """Return the lists and sets that name each id."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        places = [(queue, state) for queue in QUEUES for state in STATES]
        for (_, state), ids in zip(places, self._site.ask_all(map(whole, *zip(*places, strict=True))), strict=True):
            for task_id in ids:
                found[task_id].append(state)
        for lane in self._lanes:
            for task_id in self._site.ask("ZRANGE", f"asynq:{{{OF_LANES}}}:g:{lane}", "0", "-1"):
                found[task_id].append("aggregating")
        return found

    def left_of_lanes(self, before_s: float) -> list[Left]:
        """Return what of lanes is there that is no limit, and no rate that was not made up for before a time."""
        found = []
        prefix = f"asynq:{{{OF_LANES}}}:"
        for key in sorted(self._site.ask("KEYS", f"{prefix}*")):
            match key.removeprefix(prefix).partition(":")[0]:
                case "h" | "groups":
                    found.append(Left(key, tuple(sorted(self._site.ask("SMEMBERS", key)))))
                case "g" | "turns" | "full" | "pool":
                    found.append(Left(key, tuple(self._site.ask("ZRANGE", key, "0", "-1"))))
                case "rates":
                    fields = self._site.ask("HGETALL", key)
                    rates = zip(fields[::2], fields[1::2], strict=True)
                    if past := tuple(sorted(name for name, us in rates if float(us) / 1e6 < before_s)):
                        found.append(Left(key, past))
                case "bell":
                    found.append(Left(key, ()))
        return found if self._lanes else []

    def active(self, queue: str) -> list[str]:
        """Return the ids of the tasks that servers have."""
        ids: list[str] = self._site.ask(*whole(queue, "active"))
        return ids

    def left(self) -> list[str]:
        """Return the keys that serve nothing once all tasks have ended and all servers have stopped."""
        keys = [key for queue in QUEUES for key in self._site.ask("KEYS", f"asynq:{{{queue}}}:*")]
        ended = self.places()
        names = ("again", "lease", "active", "pending", "scheduled", "retry")
        left = [key for key in keys if key.partition("}:")[2] in names]
        # The lock of an archived task stays until its time is up, as in asynq.
        left += [key for key in keys if "}:unique:" in key and self._site.ask("GET", key) not in ended]
        of_tasks = [key for key in keys if "}:t:" in key and key.partition("}:t:")[2] not in ended]
        return sorted(left + of_tasks)

    def counts(self) -> list[Counted]:
        """Return what Redis and the history have counted."""
        records: list[tuple[int, ...]] = []
        counters = {"processed": 0, "failed": 0}
        for queue in QUEUES:
            for key in self._site.ask("KEYS", f"asynq:{{{queue}}}:history:????-??-??"):
                records += decode_records(self._site.ask("HGET", key, ALL_TYPES).encode()).values()
            for what in counters:
                counters[what] += int(self._site.ask("GET", f"asynq:{{{queue}}}:{what}") or 0)
        by_name = dict(zip(OUTCOMES, sum_of(records), strict=False))
        found = [Counted("history", what, by_name[what]) for what in ("done", "failed")]
        return found + [Counted("Redis", what, number) for what, number in counters.items()]


def whole(queue: str, state: str) -> tuple[str, ...]:
    """Return the command that reads all ids of a list or set."""
    return "LRANGE" if state in ("pending", "active") else "ZRANGE", f"asynq:{{{queue}}}:{state}", "0", "-1"
