"""What fails in a run, drawn as a list before it begins: removing one fault moves no other, nor any other draw."""

from random import Random
from typing import Final, NamedTuple

REDIS: Final = "redis"

KINDS: Final = {
    "stop": (0.5, 150.0),
    "kill": (0.5, 40.0),
    "cut": (0.0, 0.0),
    "lossy": (1.0, 20.0),
    "slow": (1.0, 20.0),
    "partition": (0.5, 120.0),
    "clock": (0.0, 0.0),
    "stall": (0.1, 12.0),
    "restart": (0.1, 10.0),
    "oom": (0.5, 15.0),
    "no replicas": (0.5, 15.0),
    "refuse": (0.5, 15.0),
    "forget scripts": (0.0, 0.0),
}
"""The kinds of faults, and for how many seconds each lasts: from, to."""
OF_REDIS: Final = ("stall", "restart", "oom", "no replicas", "refuse", "forget scripts")
REFUSED: Final = ("zadd", "lpush", "rpush", "hset", "zrem", "lrem", "del", "publish", "incr", "set", "expireat")


class Fault(NamedTuple):
    """One fault: when it begins and ends (seconds of the run), of which kind, and whom it strikes."""

    begins_s: float
    kind: str
    who: str
    lasts_s: float
    amount: float = 0.0
    """Of a clock: by how many seconds it jumps. Else a draw for what the kind needs to choose."""

    @property
    def ends_s(self) -> float:
        return self.begins_s + self.lasts_s

    def cut_at(self, longest_s: float) -> "Fault":
        """Return the same fault, or a shorter one."""
        return self._replace(lasts_s=min(self.lasts_s, longest_s))

    def __str__(self) -> str:
        how = f" by {self.amount:+.1f} s" if self.kind == "clock" else f" for {self.lasts_s:.1f} s"
        return f"{self.begins_s:8.3f} {self.kind} {self.who}{how if self.lasts_s or self.kind == 'clock' else ''}"


def draw_faults(seed: int, machines: list[str], within_s: float, count: int) -> list[Fault]:
    """Draw the faults of a run; of a machine that stands still or is dead, the clock and connections are left alone."""
    random = Random(f"{seed} faults")
    found: list[Fault] = []
    for _ in range(count):
        kind = random.choice(list(KINDS))
        who = REDIS if kind in OF_REDIS else random.choice(machines)
        least, most = KINDS[kind]
        lasts_s = least * (most / least) ** random.random() if least else 0.0
        amount = random.uniform(-20, 20) if kind == "clock" else random.random()
        found.append(Fault(random.uniform(1, within_s), kind, who, lasts_s, amount))
    return sorted(found)
