"""A run of the bench from its beginning to its end; whatever happens, what was started is ended."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from signal import SIGTERM
from tempfile import TemporaryDirectory
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from fastq.broker.transport import embedded
from fastq.terminal.interruption import Interruption
from tests.chaos.checker import check
from tests.chaos.database import Database
from tests.chaos.evidence import Evidence, Life, read_keyspace
from tests.chaos.fleet import Fleet, Generation, Plant, family_of
from tests.chaos.injector import Injector
from tests.chaos.journal import Journal
from tests.chaos.ledger import LedgerTail, read_ledger
from tests.chaos.options import ChaosOptions, timing_of
from tests.chaos.plan import Scale, kinds_named, make_plan
from tests.chaos.producer import Producer
from tests.chaos.proxy import proxies
from tests.chaos.table import Report
from tests.chaos.targets import Targets
from tests.chaos.workload import QUEUES, orders, outlasting

_STEP_S: Final = 0.02
_LOOK_S: Final = 0.25
_START_S: Final = 120.0
_STANDSTILL_S: Final = 60.0
"""How long it may be that no fewer tasks are left: how long all take is a matter of the machine."""
_STOP_S: Final = 90.0
_GONE_S: Final = 60.0
_MANY: Final = 1 << 40
"""How many tasks are left while nobody can count them."""


@contextmanager
def place_for(options: ChaosOptions) -> Iterator[Path]:
    """Give the directory of a run: the one that is to be kept, or a temporary one."""
    if options.keep is not None:
        options.keep.mkdir(parents=True)
        yield options.keep.resolve()
    else:
        # Not below a deep directory: the path of a Unix socket must stay under about 100 bytes.
        with TemporaryDirectory(prefix="fastq-chaos-") as name:
            yield Path(name)


def start_database(options: ChaosOptions, place: Path, stack: ExitStack) -> Database:
    """Start a Redis that the stack ends."""
    database = Database(options.redis_server or embedded.server_program(), place)
    stack.callback(database.stop)
    database.start_and_wait()
    return database


def run_chaos(options: ChaosOptions, interruption: Interruption, say: Callable[[str], None]) -> Report:
    """Run tasks under faults, and hold all that is known against the guarantees."""
    with ExitStack() as stack:
        bench = Bench(options, interruption, stack.enter_context(place_for(options)), stack)
        bench.run(say)
        return bench.report()


class Bench:
    """Own everything that a run has started; the stack ends it."""

    def __init__(self, options: ChaosOptions, interruption: Interruption, place: Path, stack: ExitStack) -> None:
        self._options = options
        self._interruption = interruption
        self._began_s = time.monotonic()
        self.database = start_database(options, place, stack)
        self._proxies = stack.enter_context(proxies(self.database.socket_path, options.servers + 1))
        urls = [proxy.url for proxy in self._proxies.all]
        self._timing = timing_of(options.lease_s)
        plant = Plant(place, options.children, asdict(self._timing), urls)
        self._plant = plant
        self.fleet = Fleet(plant)
        stack.callback(self.fleet.kill_all)
        self._producer = Producer(urls[-1], orders(options.tasks, options.seed), options.tasks, options.seconds)
        grace_s = self._timing.recover_grace_s
        outage_s = options.outage_s
        scale = Scale(options.servers, options.lease_s, grace_s, options.every_s, options.seconds, outage_s)
        plan = make_plan(options.seed, scale, kinds_named(options.only))
        self._tail = LedgerTail(plant.ledger)
        targets = Targets(self.fleet, self.database, self._proxies, self._tail)
        self._injector = Injector(plan, targets, self._enqueue_outlasting)
        stack.callback(self._stop_producer)
        self._settled_s = self._stuck_s = 0.0
        self._observed: list[tuple[str, str]] = []

    def _enqueue_outlasting(self) -> None:
        options = self._options
        some = outlasting(options.servers * options.children, options.seed, options.outage_s)
        self._producer.enqueue(self.database.url, some)

    def _stop_producer(self) -> None:
        if self._producer.entries or not self._producer.is_done:
            self._producer.stop()

    # The run ----------------------------------------------------------------------------------------------------

    def run(self, say: Callable[[str], None]) -> None:
        """Start, strike, settle, stop."""
        for server in range(self._options.servers):
            self.fleet.start(server)
        self._wait(lambda: all("ready: " in one.text for one in self.fleet.generations), _START_S, "servers start")
        say(f"{self._options.servers} servers are ready; faults for {self._options.seconds:g} s")
        self._producer.start()
        self._injector.begin()
        while not self._injector.is_through:
            self._injector.step()
            self._interruption.wait(_STEP_S)
        say("the last fault is over; waiting until all is worked off")
        self._settle()
        self._stop_servers()
        if self._producer.failure is not None:
            raise self._producer.failure

    def _wait(self, is_so: Callable[[], bool], within_s: float, what: str) -> None:
        until_s = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() > until_s:
                raise TimeoutError(f"waited {within_s:g} s in vain: {what}")
            self._interruption.wait(_STEP_S)

    def _settle(self) -> None:
        """Wait until nothing is left to do; note until when something was stuck."""
        began_s = time.monotonic()
        empty = 0
        least, least_s = math.inf, 0.0
        with self.database.client() as db:
            while empty < 2:  # a task that moves while they are counted might be seen nowhere
                self._interruption.wait(_LOOK_S)
                self._injector.step()
                after_s = time.monotonic() - began_s
                left, stuck = _look(db)
                left += max(0, self._options.tasks - len(self._producer.entries))  # those to come: else they are growth
                if stuck:
                    self._stuck_s = after_s
                empty = empty + 1 if not left and self._producer.is_done else 0
                if left < least:
                    least, least_s = left, after_s
                if after_s - least_s > _STANDSTILL_S:
                    text = f"{left} tasks are not worked off, and no fewer were left for {_STANDSTILL_S:.0f} s"
                    self._observed.append(("kept", text))
                    break
        self._settled_s = time.monotonic() - began_s
        if self._stuck_s > self._options.limit_s:
            text = f"ids were in active without a living lease until {self._stuck_s:.1f} s after the last fault"
            self._observed.append(("kept", text))

    def _stop_servers(self) -> None:
        self._injector.step()
        for generation in self.fleet.current.values():
            generation.is_expected_to_end = True
            generation.signal(SIGTERM)
        for generation in self.fleet.current.values():
            self._stopped(generation)
        try:
            self._wait(lambda: not family_of(self._plant.mark), _GONE_S, "all processes end")
        except TimeoutError:
            self._observed += [("alive", _describe(pid)) for pid in sorted(family_of(self._plant.mark))]
        for generation in self._injector.deaf:
            text = f"{_life(generation)} did not end while nobody read its log; {_last(generation)}"
            self._observed.append(("deaf", text))
        for generation in self._injector.self_ended:
            code = generation.process.returncode
            self._observed.append(
                ("alive", f"{_life(generation)} ended by itself with code {code}; {_last(generation)}")
            )

    def _stopped(self, generation: Generation) -> None:
        try:
            self._wait(lambda: not generation.lives(), _STOP_S, "a server stops")
        except TimeoutError:
            self._observed.append(("alive", f"{_life(generation)} did not stop; {_last(generation)}"))
            return
        if generation.process.returncode != 0:
            code = generation.process.returncode
            self._observed.append(("alive", f"{_life(generation)} stopped with code {code}; {_last(generation)}"))

    # The report -------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Check everything that is known."""
        with self.database.client() as db:
            keyspace = read_keyspace(db)
        journal = self._injector.journal
        evidence = Evidence(
            timing=self._timing,
            unix_less_monotonic_s=time.time() - time.monotonic(),
            entries=self._producer.entries,
            records=list(read_ledger(self._plant.ledger)),
            strikes=journal.strikes,
            lives={one.number: Life(one.server, one.began_ns, one.ended_ns) for one in self.fleet.generations},
            keyspace=keyspace,
            observed=self._observed,
        )
        if self._options.keep is not None:
            _keep(journal, self._options.keep / "journal.json")
        took_s = time.monotonic() - self._began_s
        lives = len(self.fleet.generations)
        return Report(self._options, journal, check(evidence), took_s, self._settled_s, self._stuck_s, lives)


_LOOK = """
local left, stuck = 0, 0
local now = tonumber(ARGV[1])
for _, queue in ipairs(KEYS) do
  local prefix = "asynq:{" .. queue .. "}:"
  for _, state in ipairs({"pending", "active"}) do left = left + redis.call("LLEN", prefix .. state) end
  for _, state in ipairs({"lease", "retry", "scheduled"}) do left = left + redis.call("ZCARD", prefix .. state) end
  stuck = stuck + redis.call("ZCOUNT", prefix .. "lease", "-inf", now)
  for _, id in ipairs(redis.call("LRANGE", prefix .. "active", 0, -1)) do
    if not redis.call("ZSCORE", prefix .. "lease", id) then stuck = stuck + 1 end
  end
end
return {left, stuck}
"""


def _look(db: Redis) -> tuple[int, int]:
    """Count the tasks that are not through, and those whose lease has ended or is not there."""
    ask: Any = db
    try:
        left, stuck = ask.eval(_LOOK, len(QUEUES), *QUEUES, int(time.time()))
    except RedisError:
        return _MANY, 0
    return int(left), int(stuck)


def _life(generation: Generation) -> str:
    return f"server {generation.server}, generation {generation.number} (process {generation.pid})"


def _last(generation: Generation) -> str:
    return "its log ends: " + " | ".join(list(filter(None, generation.text.splitlines()))[-5:])


def _describe(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        words = "gone now"
    return f"process {pid} outlived its server: {words[:120]}"


def _keep(journal: Journal, path: Path) -> None:
    struck = [
        {**vars(strike), "kind": strike.kind.value, "began_s": strike.began_ns / 1e9, "ended_s": strike.ended_ns / 1e9}
        for strike in journal.strikes
    ]
    path.write_text(json.dumps(struck, indent=1))
