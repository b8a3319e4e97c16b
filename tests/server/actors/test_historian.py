"""The historian: what was counted is added to the history once, whatever happens to the write."""

import pytest
from redis import Redis

from fastq.broker.inspect.history import read_hours, read_minutes_by_type
from fastq.broker.scripts import SCRIPTS
from fastq.common.clock import at_unix_ns
from fastq.errors import BrokerError
from fastq.server.actors.historian import Historian
from fastq.wire import keys
from tests.broker.harness import QUEUE
from tests.faulty_proxy import Act, faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.harness import Bench, ScriptFault, on_bench


def historian(bench: Bench) -> Historian:
    bench.db.set(keys.processed_total(QUEUE), 1)
    return Historian(bench.commands, bench.stats, bench.clock, 5.0)


def lose(bench: Bench, count: int, queue: str = QUEUE, type: str = "t") -> None:
    """Let tasks be counted in a way that needs no run."""
    bench.stats.tally(queue, type).lost += count


def kept(bench: Bench, queue: str = QUEUE) -> int:
    """Return the lost tasks of the hour."""
    records = bench.queue.run(read_hours(queue, at_unix_ns(bench.clock.unix_ns())))
    return sum(counts[4] for counts in records.values())


def test_it_writes_what_is_new_and_nothing_otherwise(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        writing = historian(bench)
        lose(bench, 2)
        lose(bench, 1, type="other:type")
        assert (await writing.tick(), kept(bench)) == (5.0, 3)
        db.config_resetstat()
        await writing.tick()
        assert "cmdstat_evalsha" not in db.info("commandstats")
        lose(bench, 4)
        await writing.tick()
        now = at_unix_ns(bench.clock.unix_ns())
        found = bench.queue.run(read_minutes_by_type(QUEUE, now))
        lost = {name: sum(counts[4] for counts in records.values()) for name, records in found.items()}
        assert lost == {"": 7, "t": 6, "other:type": 1}

    on_bench(db, url, test)


@pytest.mark.parametrize(
    ("act", "later"),
    [
        (Act.CUT_BEFORE_REPLY, 10),  # it was carried out
        (Act.CUT_BEFORE_REQUEST, 10),  # it may have been: a beat is lost rather than counted twice
        (Act.ANSWER, 11),  # it certainly was not
    ],
)
def test_no_fault_lets_anything_be_counted_twice(act: Act, later: int, db: Redis, shared_server: RedisServer) -> None:
    async def test(bench: Bench) -> None:
        writing = historian(bench)
        lose(bench, 10)
        if act is not Act.CUT_BEFORE_REPLY:
            await writing.tick()
            lose(bench, 1)
        with pytest.raises(BrokerError):
            await writing.tick()
        assert kept(bench) == 10
        await writing.tick()
        assert kept(bench) == later

    skip = 0 if act is Act.CUT_BEFORE_REPLY else 1
    fault = ScriptFault("add_history", act, skip=skip, answer=b"-OOM command not allowed when used memory is high\r\n")
    db.script_load(SCRIPTS["add_history"].text)
    with faulty_proxy(shared_server.socket_path, fault) as proxy:
        on_bench(db, shared_server.url, test, through=proxy.url)


def test_a_queue_that_fails_does_not_delay_the_others(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        writing = historian(bench)
        db.set(keys.processed_total("odd"), 1)
        odd = keys.history_hours("odd", at_unix_ns(bench.clock.unix_ns()))
        db.set(odd, "not a hash")
        lose(bench, 3, queue="odd")
        lose(bench, 2)
        with pytest.raises(BrokerError, match="add_history"):
            await writing.tick()
        assert kept(bench) == 2
        db.delete(odd)
        lose(bench, 1, queue="odd")
        await writing.tick()
        assert (kept(bench), kept(bench, "odd")) == (2, 1), "a script that fails may have done its work"

    on_bench(db, url, test)
