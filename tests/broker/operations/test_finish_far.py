"""Tasks that were done far from both ends of active: taken off together, each with the outcome it would have alone."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.finish import NEWEST_FIRST, OLDEST_FIRST, Done, FinishOutcome, done
from fastq.broker.operations.lease import Owner
from fastq.broker.transport.open import open_broker
from fastq.errors import BrokerAuthError
from fastq.wire import keys
from tests.broker.harness import NOW, NOW_S, OURS, QUEUE, THEIRS, QueueBench, queue_bench
from tests.redis_servers import RedisServer

OK, NOT_ACTIVE, NOT_OURS = FinishOutcome.OK, FinishOutcome.NOT_ACTIVE, FinishOutcome.NOT_OURS
ACTIVE = keys.active(QUEUE)
SIDES = [OLDEST_FIRST, NEWEST_FIRST]
LAY_OUT = """
for at = 2, #ARGV do redis.call("HSET", ARGV[1] .. ARGV[at], "msg", "m") end
"""


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def lay_out(db: Any, oldest_first: Sequence[str], theirs: Sequence[str] = ()) -> None:
    """Let tasks be active: leased by us, but for those that are theirs."""
    owners = {task_id: THEIRS if task_id in theirs else OURS for task_id in oldest_first}
    pipeline = db.pipeline(transaction=False)
    pipeline.lpush(ACTIVE, *oldest_first)
    pipeline.zadd(keys.lease(QUEUE), {task_id: NOW_S + 30 + owner.fraction for task_id, owner in owners.items()})
    pipeline.eval(LAY_OUT, 0, keys.task(QUEUE, ""), *owners)
    pipeline.execute()


def finish(bench: QueueBench, ids: Sequence[str], side: int, owner: Owner | None = None) -> list[FinishOutcome]:
    """Call ``done`` as the acker does: those that are nearest to the side first."""
    return bench.run(done(QUEUE, [Done(task_id) for task_id in ids], NOW, owner, side))


def removals(bench: QueueBench) -> int:
    return int(bench.db.info("commandstats").get("cmdstat_lrem", {"calls": 0})["calls"])


def tasks_in(db: Any) -> set[str]:
    """Return the ids of all tasks that have a hash."""
    return {key.decode().removeprefix(keys.task(QUEUE, "")) for key in db.keys(keys.task(QUEUE, "*"))}


def named(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number:05d}" for number in range(count)]


@pytest.mark.parametrize("guard", [None, OURS], ids=["anybody's", "ours"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(12))
def test_each_has_its_outcome_and_what_stays_keeps_its_order(
    seed: int, side: int, guard: Owner | None, bench: QueueBench
) -> None:
    rng = random.Random(seed)
    older, newer = named("older", rng.choice([0, 40, 700, 3000])), named("newer", rng.choice([0, 40, 700, 3000]))
    middle = named("ours", 400)
    theirs = set(rng.sample(middle, 20))
    lay_out(bench.db, [*older, *middle, *newer], tuple(theirs))
    chosen = [task_id for task_id in middle if rng.random() < 0.5]
    for task_id in rng.sample(middle, 20):  # others have taken them off
        bench.db.lrem(ACTIVE, 1, task_id)
    before = [raw.decode() for raw in bench.db.lrange(ACTIVE, 0, -1)]
    asked = [*chosen, *rng.sample(chosen, 3), "nowhere"]
    asked.sort(key=lambda task_id: (task_id == "nowhere", task_id), reverse=side == NEWEST_FIRST)
    left, expected = Counter(before), []
    for task_id in asked:
        if guard is not None and (task_id in theirs or task_id == "nowhere"):
            expected.append(NOT_OURS)
        elif left[task_id]:
            left[task_id] -= 1
            expected.append(OK)
        else:
            expected.append(NOT_ACTIVE)
    assert finish(bench, asked, side, guard) == expected
    gone = {task_id for task_id, outcome in zip(asked, expected, strict=True) if outcome is OK}
    assert [raw.decode() for raw in bench.db.lrange(ACTIVE, 0, -1)] == [one for one in before if one not in gone]
    assert not gone & set(bench.scores("lease"))
    assert tasks_in(bench.db) == {*older, *middle, *newer} - gone
    assert sum(bench.counters().values()) == 2 * len(gone)  # of the day, and of all days


@pytest.mark.parametrize("side", SIDES)
def test_one_that_stands_there_twice_is_taken_off_once(side: int, bench: QueueBench) -> None:
    middle = named("ours", 50)
    lay_out(bench.db, [*named("older", 200), *middle, middle[7], *named("newer", 200)])
    assert finish(bench, middle if side == OLDEST_FIRST else middle[::-1], side) == [OK] * 50
    left = bench.db.lrange(ACTIVE, 0, -1)
    assert (len(left), left.count(middle[7].encode())) == (401, 1)


@pytest.mark.parametrize("side", SIDES)
def test_it_takes_redis_no_more_than_a_walk(side: int, bench: QueueBench) -> None:
    middle = named("ours", 300)
    lay_out(bench.db, [*named("older", 2000), *middle, *named("newer", 2000)])
    bench.db.config_resetstat()
    assert finish(bench, middle if side == OLDEST_FIRST else middle[::-1], side) == [OK] * 300
    assert removals(bench) <= 2  # before Redis 7 there is one that takes nothing off


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("step", [0, 7, 1], ids=["all there", "some gone", "all gone"])
def test_what_is_near_the_other_end_is_looked_for_there(step: int, side: int, bench: QueueBench) -> None:
    """A server knows the age of its own tasks: where all others are older, the old end is the far one."""
    ours, others = named("ours", 300), named("others", 3000)
    asked = ours if side == OLDEST_FIRST else ours[::-1]
    lay_out(bench.db, [*others, *ours] if side == OLDEST_FIRST else [*ours, *others])
    gone = asked[1::step] if step else []
    assert finish(bench, gone, side) == [OK] * len(gone)
    bench.db.config_resetstat()
    expected = [NOT_ACTIVE if task_id in gone else OK for task_id in asked]
    assert finish(bench, asked, side) == expected
    stats = bench.db.info("commandstats")
    assert removals(bench) <= 2
    assert step or stats["cmdstat_lrange"]["calls"] == 1  # it has seen no more than ours
    assert bench.db.lrange(ACTIVE, 0, -1) == [task_id.encode() for task_id in others[::-1]]


def test_one_that_is_named_twice_near_the_other_end_is_taken_off_once_for_each_place(bench: QueueBench) -> None:
    ours = named("ours", 50)
    lay_out(bench.db, [*named("others", 200), *ours, ours[7]])
    assert finish(bench, [*ours, ours[7], ours[8]], OLDEST_FIRST) == [*[OK] * 51, NOT_ACTIVE]
    assert bench.db.llen(ACTIVE) == 200


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("gone", ["the first", "the last", "half", "all"])
def test_what_is_gone_costs_no_look_through_the_list_for_each(gone: str, side: int, bench: QueueBench) -> None:
    """A call whose reply was lost is made again, and finds none."""
    middle = named("ours", 300)
    asked = middle if side == OLDEST_FIRST else middle[::-1]
    missing = {"the first": asked[:1], "the last": asked[-1:], "half": asked[::2], "all": asked}[gone]
    lay_out(bench.db, [*named("older", 2000), *middle, *named("newer", 2000)])
    assert finish(bench, missing, side) == [OK] * len(missing)
    bench.db.config_resetstat()
    expected = [NOT_ACTIVE if task_id in missing else OK for task_id in asked]
    assert finish(bench, asked, side) == expected
    assert removals(bench) <= 2
    assert bench.db.llen(ACTIVE) == 4000


@pytest.mark.parametrize("side", SIDES)
def test_one_that_is_near_leaves_the_others_together(side: int, bench: QueueBench) -> None:
    near, far = named("near", 1), named("ours", 300)
    old, new = (near, []) if side == OLDEST_FIRST else ([], near)
    lay_out(bench.db, [*old, *named("older", 2000), *far, *named("newer", 2000), *new])
    bench.db.config_resetstat()
    asked = [*near, *(far if side == OLDEST_FIRST else far[::-1])]
    assert finish(bench, asked, side) == [OK] * 301
    assert removals(bench) <= 2


@pytest.mark.parametrize("command", ["lrem", "llen", "lrange"])
def test_a_user_who_may_not_take_them_off_leaves_no_marks(
    command: str, shared_server: RedisServer, bench: QueueBench
) -> None:
    middle = named("ours", 40)
    lay_out(bench.db, [*named("older", 200), *middle, *named("newer", 200)])
    before = bench.db.lrange(ACTIVE, 0, -1)
    bench.db.acl_setuser(
        "w", enabled=True, passwords=["+p"], categories=["+@all"], commands=[f"-{command}"], keys=["*"]
    )
    broker = open_broker(f"unix://w:p@{shared_server.socket_path}")
    try:
        with pytest.raises(BrokerAuthError):
            broker.run(done(QUEUE, [Done(task_id) for task_id in middle], NOW))
    finally:
        broker.close()
        bench.db.acl_deluser("w")
    assert bench.db.lrange(ACTIVE, 0, -1) == before


def test_what_lies_too_far_from_the_first_is_taken_off_one_by_one(bench: QueueBench) -> None:
    middle = named("ours", 40)
    lay_out(bench.db, [*named("older", 100), *middle[:30], *named("between", 21_000), *middle[30:], *named("newer", 9)])
    assert finish(bench, middle, OLDEST_FIRST) == [OK] * 40
    assert bench.db.llen(ACTIVE) == 21_109
    assert not any(b"ours" in raw for raw in bench.db.lrange(ACTIVE, 0, -1))


def test_a_user_who_may_not_mark_takes_them_off_one_by_one(shared_server: RedisServer, bench: QueueBench) -> None:
    middle = named("ours", 40)
    lay_out(bench.db, [*named("older", 200), *middle, *named("newer", 200)])
    bench.db.acl_setuser("w", enabled=True, passwords=["+p"], categories=["+@all"], commands=["-lset"], keys=["*"])
    broker = open_broker(f"unix://w:p@{shared_server.socket_path}")
    try:
        assert broker.run(done(QUEUE, [Done(task_id) for task_id in middle], NOW)) == [OK] * 40
    finally:
        broker.close()
        bench.db.acl_deluser("w")
    assert bench.db.llen(ACTIVE) == 400


def test_a_redis_without_memory_still_takes_them_off(bench: QueueBench) -> None:
    middle = named("ours", 40)
    lay_out(bench.db, [*named("older", 200), *middle, *named("newer", 200)])
    bench.db.config_set("maxmemory", 1)
    try:
        assert finish(bench, middle, OLDEST_FIRST) == [OK] * 40
    finally:
        bench.db.config_set("maxmemory", 0)
    assert bench.db.llen(ACTIVE) == 400
