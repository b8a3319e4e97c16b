"""The recoverer: what a dead server had comes back once, what it left half done is repaired, the rest is left alone."""

import asyncio
from typing import Any

import pytest
from redis import Redis

from fastq.errors import BrokerError
from fastq.server.actors.lost_tasks import LostTaskRules
from fastq.server.base.commands import Commands
from fastq.server.inflight.stats import RepairKind
from fastq.server.inflight.tally import Tally
from fastq.wire import keys
from fastq.wire.attempts import AttemptRecord, decode_attempts
from fastq.wire.codec import decode_task_message
from fastq.worker.shared.report import FailureReport
from tests.broker.harness import GOS, NOW, NOW_NS, NOW_S, OURS, QUEUE, THEIRS, message
from tests.redis_servers import redis_server
from tests.server.harness import Bench, logged, on_bench, recoverer
from tests.waiting import until

EXPIRED_S = NOW_S - 30
PUT_BACK = "asynq: task lease expired: lost with its server; time 1 of at most 3, no attempt charged"
ONCE = "asynq: task lease expired: lost with its server; max_retry=0, and whether it had started is not known"


def recovered(bench: Bench) -> int:
    return bench.stats.repairs[RepairKind.RECOVERED]


def repaired(bench: Bench) -> int:
    """Return how many ids and leases were repaired."""
    return bench.stats.repairs.total() - recovered(bench)


# Leases that ended ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [GOS, THEIRS, OURS])
def test_a_task_whose_lease_ended_30_s_ago_is_tried_again_and_charged_nothing(owner: Any, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("a", owner=owner, until_s=EXPIRED_S - 1, retried=3)
        recovering = recoverer(bench)
        assert await recovering.tick() == 30.0
        assert bench.queue.places() == {"pending": ["a"]}
        new = message("a", retried=3, error_msg=PUT_BACK, last_failed_at=NOW_S)
        fields = bench.queue.task("a")
        (attempt,) = decode_attempts(fields.pop("attempts"))
        assert fields == {"msg": new, "state": b"pending", "pending_since": b"%d" % NOW_NS, "lost": b"1"}
        error = "LeaseExpiredError: lost with its server; time 1 of at most 3, no attempt charged"
        assert attempt == AttemptRecord(4, 0, NOW_S * 1000, "", error)
        assert bench.queue.counters() == {}
        assert recovered(bench) == 1

    on_bench(db, url, test)


def test_what_waits_behind_a_run_that_is_over_is_put_by_a_server_that_has_run_no_task_by_key(
    db: Redis, url: str
) -> None:
    async def test(bench: Bench) -> None:
        bench.db.hset(keys.again(QUEUE), "a", b"::" + message("a"))  # its server died behind the end of the run
        await recoverer(bench).tick()
        assert bench.queue.places() == {"pending": ["a"]}
        assert not bench.db.exists(keys.again(QUEUE))

    on_bench(db, url, test)


def test_a_last_attempt_that_was_lost_is_still_to_be_made(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("a", until_s=1, retry=3, retried=3)
        await recoverer(bench).tick()
        assert bench.queue.places() == {"pending": ["a"]}
        assert bench.queue.message("a").retried == 3

    on_bench(db, url, test)


def test_a_task_that_may_run_once_goes_to_the_archive(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("a", "b", until_s=1, retry=0)
        await recoverer(bench).tick()
        assert bench.queue.scores("archived") == {"a": NOW_S, "b": NOW_S}
        new = message("a", retry=0, error_msg=ONCE, last_failed_at=NOW_S)
        fields = bench.queue.task("a")
        (attempt,) = decode_attempts(fields.pop("attempts"))
        assert attempt.error == "LeaseExpiredError: " + ONCE.partition("expired: ")[2]
        assert fields == {"msg": new, "state": b"archived", "lost": b"1"}
        assert bench.queue.counters()["failed"] == bench.queue.counters()["processed"] == 2

    on_bench(db, url, test)
    assert logged(caplog) == [
        "queue default: 2 tasks were lost because their server died or is cut off from Redis; archived "
        "(max_retry=0, and whether it had started is not known): a, b"
    ]


@pytest.mark.parametrize(
    ("max_lost", "before", "goes_to"), [(3, 0, "pending"), (3, 2, "retry"), (3, 3, "archived"), (0, 0, "archived")]
)
def test_a_task_that_was_lost_too_often_is_archived_as_poison(
    max_lost: int, before: int, goes_to: str, db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("a", until_s=1, retried=7)
        if before:
            bench.db.hset(keys.task(QUEUE, "a"), "lost", before)
        recovering = recoverer(bench, rules=LostTaskRules(lambda retried: 100.0 + retried, max_lost, None, Tally))
        await recovering.tick()
        assert bench.queue.places() == {goes_to: ["a"]}
        assert bench.queue.task("a")["lost"] == str(before + 1).encode()
        assert bench.queue.message("a").retried == 7
        says_why = f"time {before + 1}, over max_lost={max_lost}" in bench.queue.message("a").error_msg
        assert says_why is (goes_to == "archived")

    on_bench(db, url, test)
    (said,) = logged(caplog)
    follows = {
        "pending": "they run again at once, no",
        "retry": "they will be retried, no",
        "archived": "archived (time ",
    }
    assert follows[goes_to] in said


@pytest.mark.parametrize("garbage", ["many", "1e300", "-4", "9" * 5000])
def test_a_count_of_losses_that_is_none_stops_nothing(garbage: str, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("a", "b", until_s=1)
        bench.db.hset(keys.task(QUEUE, "a"), "lost", garbage)
        await recoverer(bench).tick()
        assert bench.queue.places() == {"pending": ["b", "a"]}

    on_bench(db, url, test)


def test_what_was_lost_is_counted_by_day_until_the_other_counters_go(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("a", "b", until_s=1)
        bench.queue.activate("once", until_s=1, retry=0)
        bench.queue.activate("held", until_s=NOW_S)
        recovering = recoverer(bench)
        await recovering.tick()
        await recovering.tick()
        key = keys.lost(QUEUE, NOW)
        assert bench.db.get(key) == b"3"
        assert bench.db.expiretime(key) == bench.db.expiretime(keys.failed(QUEUE, NOW))

    on_bench(db, url, test)


def test_a_counter_that_is_none_is_said_and_keeps_no_task_from_being_recovered(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        bench.db.set(keys.lost(QUEUE, NOW), "many")
        bench.queue.activate("a", until_s=1)
        await recoverer(bench).tick()
        assert bench.queue.places() == {"pending": ["a"]}

    on_bench(db, url, test)
    assert logged(caplog)[-1].startswith("queue default: the counter of lost tasks of the day lacks 1: ")


def test_what_was_lost_is_said_with_its_ids_and_what_follows(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate(*(f"id-{number:02}" for number in range(12)), until_s=1)
        await recoverer(bench).tick()

    on_bench(db, url, test)
    ids = ", ".join(f"id-{number:02}" for number in range(10))
    assert logged(caplog) == [
        "queue default: 12 tasks were lost because their server died or is cut off from Redis; "
        f"they run again at once, no attempt charged: {ids}, …"
    ]


@pytest.mark.parametrize(("until_s", "owner", "comes"), [(EXPIRED_S, GOS, True), (EXPIRED_S, OURS, False)])
def test_the_limit_is_30_s_to_the_second(until_s: int, owner: Any, comes: bool, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("a", until_s=until_s, owner=owner)
        bench.queue.activate("later", until_s=EXPIRED_S + 1, owner=GOS)
        await recoverer(bench).tick()
        assert ("a" in bench.queue.places().get("pending", [])) is comes
        assert "later" in bench.queue.places()["active"]

    on_bench(db, url, test)


def test_hundreds_of_tasks_come_back_in_one_go(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate(*(str(number) for number in range(350)), until_s=1)
        recovering = recoverer(bench)
        await recovering.tick()
        assert recovered(bench) == 350
        assert bench.queue.places().keys() == {"pending"}

    on_bench(db, url, test)


def test_large_tasks_come_back_in_one_go(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate(*(str(number) for number in range(8)), until_s=1, payload=bytes(100_000))
        recovering = recoverer(bench)
        await recovering.tick()
        assert recovered(bench) == 8

    on_bench(db, url, test)


# Who else is at it ------------------------------------------------------------------------------------------------


def test_two_recoverers_at_once_move_each_task_once(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate(*(f"r{number}" for number in range(150)), until_s=1)
        bench.queue.activate(*(f"d{number}" for number in range(150)), until_s=1, retry=0)
        # A command connection each, so that their calls come in turns.
        both = [recoverer(bench, commands=Commands(bench.broker)) for _ in range(2)]
        await asyncio.gather(*(one.tick() for one in both))
        assert recovered(bench) == 300
        assert len(bench.queue.places()["pending"]) == len(bench.queue.places()["archived"]) == 150
        assert bench.queue.counters()["processed"] == 150
        assert {bench.queue.task(f"r{n}")["lost"] for n in range(150)} == {b"1"}

    on_bench(db, url, test)


@pytest.mark.parametrize("retries", [25, 0])
def test_a_task_that_is_leased_anew_between_look_and_move_is_left_alone(retries: int, db: Redis, url: str) -> None:
    class Late(Commands):
        """Let another server extend the lease after the look."""

        async def run(self, operation: Any) -> Any:
            result = await super().run(operation)
            if operation.name == "list_leases" and result.tasks:
                db.zadd(keys.lease(QUEUE), {"a": NOW_S + 30 + THEIRS.fraction})
            return result

    async def test(bench: Bench) -> None:
        bench.queue.activate("a", until_s=1, owner=THEIRS, retry=retries)
        recovering = recoverer(bench, commands=Late(bench.broker))
        await recovering.tick()
        assert bench.queue.places() == {"active": ["a"], "lease": ["a"]}
        assert bench.queue.task("a") == {"msg": message("a", retry=retries), "state": b"active"}
        assert bench.queue.counters() == {}
        assert recovered(bench) == repaired(bench) == 0

    on_bench(db, url, test)


def test_what_we_hold_is_ours_to_extend_and_not_to_recover(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("held", until_s=1)
        bench.add("held")
        bench.queue.activate("others", until_s=1, owner=THEIRS)
        recovering = recoverer(bench)
        await recovering.tick()
        assert bench.queue.places() == {"active": ["held"], "lease": ["held"], "pending": ["others"]}

    on_bench(db, url, test)


# Hooks ------------------------------------------------------------------------------------------------------------


def test_the_apps_hooks_decide_on_a_task_that_is_tried_again_and_on_no_other(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        asked: list[bytes] = []

        async def judge(data: bytes) -> FailureReport | None:
            asked.append(data)
            return None if decode_task_message(data).id == "default" else FailureReport("", True, 7.0)

        bench.queue.activate("hooked", "default", until_s=1)
        bench.queue.activate("dead", until_s=1, retry=0)
        for task_id in ("hooked", "default"):
            bench.db.hset(keys.task(QUEUE, task_id), "lost", 1)
        bench.queue.activate("lost for the first time", until_s=1)
        recovering = recoverer(bench, rules=LostTaskRules(lambda retried: 100.0 + retried, 3, judge, Tally))
        await recovering.tick()
        assert asked == [message("default"), message("hooked")]
        assert bench.queue.scores("retry") == {"hooked": NOW_S + 7, "default": NOW_S + 100}
        assert bench.queue.message("hooked").error_msg == PUT_BACK.replace("time 1", "time 2"), (
            "the text is what this server knows"
        )
        assert bench.queue.counters()["failed"] == 1, "no failure, whatever the hooks say: it was not the task's fault"

    on_bench(db, url, test)


# What cannot be read ----------------------------------------------------------------------------------------------

BROKEN = {
    "garbage": b"\xff\xff\xff",
    "empty": b"",
    "another's": message("another"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_message_that_cannot_be_read_is_archived_once_and_stops_no_other(what: str, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("bad", "good", until_s=1)
        bench.db.hset(keys.task(QUEUE, "bad"), "msg", BROKEN[what])
        recovering = recoverer(bench)
        await recovering.tick()
        assert bench.queue.places() == {"pending": ["good"], "archived": ["bad"]}
        archived = decode_task_message(bench.queue.task("bad")["msg"])
        assert (archived.type, archived.id, archived.queue) == ("fastq:undecodable", "bad", QUEUE)
        assert (archived.payload, archived.retry) == (BROKEN[what], 0)
        assert archived.error_msg.startswith("InvalidMessageError: ")

    on_bench(db, url, test)


def test_a_message_whose_text_is_not_utf_8_is_archived_once(db: Redis, url: str) -> None:
    # It passes the view, which does not look at error_msg, and fails when it is rewritten.
    async def test(bench: Bench) -> None:
        bad = message("bad", error_msg="boom").replace(b"boom", b"b\xff\xffm")
        bench.queue.activate("bad", "good", until_s=1)
        bench.db.hset(keys.task(QUEUE, "bad"), "msg", bad)
        await recoverer(bench).tick()
        assert bench.queue.places() == {"pending": ["good"], "archived": ["bad"]}
        assert decode_task_message(bench.queue.task("bad")["msg"]).payload == bad

    on_bench(db, url, test)


def test_an_id_that_is_not_utf_8_is_archived(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        raw = b"bad-\xff"
        bench.db.hset(keys.task_prefix(QUEUE).encode() + raw, mapping={"msg": message("bad"), "state": "active"})
        bench.db.lpush(keys.active(QUEUE), raw)
        bench.db.zadd(keys.lease(QUEUE), {raw: 1})
        await recoverer(bench).tick()
        assert bench.db.zrange(keys.archived(QUEUE), 0, -1) == [raw]
        assert not bench.db.exists(keys.lease(QUEUE), keys.active(QUEUE))

    on_bench(db, url, test)


# Repairs -----------------------------------------------------------------------------------------------------------


def test_dangling_ids_are_dropped_and_counted(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("leased-dangling", until_s=1)
        bench.queue.activate("active-dangling", "whole")
        bench.db.delete(keys.task(QUEUE, "leased-dangling"), keys.task(QUEUE, "active-dangling"))
        bench.db.zrem(keys.lease(QUEUE), "active-dangling")
        recovering = recoverer(bench)
        await recovering.tick()
        assert bench.queue.places() == {"active": ["whole"], "lease": ["whole"]}
        assert repaired(bench) == 2
        assert recovered(bench) == 0

    on_bench(db, url, test)
    assert logged(caplog) == ["queue default: 2 ids without task"]


def test_each_kind_of_repair_is_counted_and_said(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The dangling ids that stay in active or lease for ever with asynq, planted all at once."""

    async def test(bench: Bench) -> None:
        bench.queue.activate("whole")
        bench.queue.activate("dead", "no-hash", "not-active", until_s=1)
        bench.queue.activate("no-lease", "no-lease-no-hash")
        bench.db.delete(keys.task(QUEUE, "no-hash"), keys.task(QUEUE, "no-lease-no-hash"))
        bench.db.zrem(keys.lease(QUEUE), "no-lease", "no-lease-no-hash")
        bench.db.lrem(keys.active(QUEUE), 0, "not-active")
        recovering = recoverer(bench)
        await recovering.tick()
        assert bench.queue.places() == {
            "active": ["no-lease", "whole"],
            "lease": ["no-lease", "whole"],
            "pending": ["dead", "not-active"],
        }
        assert bench.stats.repairs == {
            RepairKind.RECOVERED: 1,
            RepairKind.NO_TASK: 2,
            RepairKind.NO_LEASE: 1,
            RepairKind.NOT_ACTIVE: 1,
        }
        await recovering.tick()
        assert bench.stats.repairs.total() == 5, "what is repaired is not repaired again"

    on_bench(db, url, test)
    assert logged(caplog) == [
        "queue default: 1 tasks were lost because their server died or is cut off from Redis; "
        "they run again at once, no attempt charged: dead",
        "queue default: 2 ids without task, 1 active without lease, 1 leases without active task",
    ]


def test_what_cannot_be_repaired_does_not_keep_dead_servers_tasks_from_coming_back() -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("a", until_s=1)
        bench.queue.activate("no-lease")
        bench.db.zrem(keys.lease(QUEUE), "no-lease")
        bench.db.config_set("maxmemory", 1)  # a new lease takes memory; what frees some first is let pass
        with pytest.raises(BrokerError, match="maxmemory"):
            await recoverer(bench).tick()
        assert bench.queue.places() == {"pending": ["a"], "active": ["no-lease"]}

    with redis_server() as server, server.client() as db:
        on_bench(db, server.url, test)


def test_hundreds_of_dangling_ids_go_in_one_go(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.db.zadd(keys.lease(QUEUE), {f"dangling-{number}": 1 for number in range(250)})
        bench.queue.activate("a", until_s=2)
        recovering = recoverer(bench)
        await recovering.tick()
        assert bench.queue.places() == {"pending": ["a"]}
        assert repaired(bench) == 250

    on_bench(db, url, test)


def test_an_active_task_without_lease_is_recovered_within_two_rounds(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("a")
        bench.db.zrem(keys.lease(QUEUE), "a")
        recovering = recoverer(bench)
        await recovering.tick()
        assert bench.queue.scores("lease") == {"a": NOW_S}
        assert bench.queue.places()["active"] == ["a"], "it may be about to be leased: it has 30 s"
        bench.clock.advance(60)
        await recovering.tick()
        assert bench.queue.places() == {"pending": ["a"]}
        assert (repaired(bench), recovered(bench)) == (1, 1)

    on_bench(db, url, test)


def test_a_leased_task_that_is_in_no_list_goes_back_to_pending(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate("lost", "lost-last", until_s=1)
        bench.db.hset(keys.task(QUEUE, "lost-last"), "msg", message("lost-last", retry=0))
        bench.db.delete(keys.active(QUEUE))
        recovering = recoverer(bench)
        await recovering.tick()
        assert sorted(bench.queue.places()["pending"]) == ["lost", "lost-last"]
        assert bench.queue.places().keys() == {"pending"}
        assert repaired(bench) == 2

    on_bench(db, url, test)


def test_a_long_active_list_is_gone_through_to_its_end(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        ids = [f"{number:04d}" for number in range(1300)]
        bench.queue.activate(*ids)
        bench.db.delete(*(keys.task(QUEUE, task_id) for task_id in ids[100:700]))
        bench.db.zrem(keys.lease(QUEUE), *ids[100:700], ids[0], ids[-1])
        recovering = recoverer(bench)
        await recovering.tick()
        assert repaired(bench) == 602
        assert bench.queue.places()["active"] == [*ids[:100], *ids[700:]][::-1]
        assert len(bench.queue.scores("lease")) == 700

    on_bench(db, url, test)


# Outage ----------------------------------------------------------------------------------------------------------


def test_a_queue_that_fails_does_not_keep_the_others_waiting(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.db.set(keys.lease("odd"), "not a set")
        bench.db.lpush(keys.active("odd"), "x")
        bench.queue.activate("a", until_s=1)
        with pytest.raises(BrokerError):
            await recoverer(bench, "odd", QUEUE).tick()
        assert bench.queue.places() == {"pending": ["a"]}

    on_bench(db, url, test)


def test_it_begins_at_once_and_starts_and_stops_again_and_again(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.activate(*(str(number) for number in range(200)), until_s=1)
        for number in range(50):
            recovering = recoverer(bench)
            recovering.start()
            for _ in range(number % 12):
                await asyncio.sleep(0)
            await recovering.stop()
        recovering = recoverer(bench)
        recovering.start()
        await until(lambda: recovering.ticks)
        await recovering.stop()
        assert bench.queue.places().keys() == {"pending"}
        assert {bench.queue.task(str(number))["lost"] for number in range(200)} == {b"1"}

    on_bench(db, url, test)
