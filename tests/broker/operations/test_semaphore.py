"""Semaphores: never more tokens than there are, none lost to a lost reply, and x/rate's keys to the letter."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.semaphore import Token, acquire_token, count_tokens, release_token
from fastq.broker.transport.open import open_broker
from fastq.errors import BrokerError
from tests.broker.harness import NOW_S, QueueBench, queue_bench
from tests.faulty_proxy import Act, faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.harness import ScriptFault

KEY = "asynq:sema:s"


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def take(bench: QueueBench, holder: str, *, tokens: int = 2, deadline_s: int = NOW_S + 60, now_s: int = NOW_S) -> bool:
    assert bench._broker is not None
    return bench._broker.drive(acquire_token(Token("s", holder, deadline_s), tokens, now_s))


def holders(bench: QueueBench) -> dict[str, float]:
    return {member.decode(): score for member, score in bench.db.zrange(KEY, 0, -1, withscores=True)}


def test_tokens_are_given_until_none_is_free(bench: QueueBench) -> None:
    assert [take(bench, holder) for holder in "abc"] == [True, True, False]
    assert holders(bench) == {"a": NOW_S + 60, "b": NOW_S + 60}
    assert [bench.run(release_token("s", "a")), bench.run(release_token("s", "a"))] == [True, False]
    assert take(bench, "c")
    assert holders(bench).keys() == {"b", "c"}


def test_a_token_ends_a_second_after_its_deadline_as_in_asynq(bench: QueueBench) -> None:
    take(bench, "a", tokens=1)
    assert not take(bench, "b", tokens=1, now_s=NOW_S + 60)
    assert bench.run(count_tokens("s", NOW_S + 60)) == 1
    assert bench.run(count_tokens("s", NOW_S + 61)) == 0
    assert take(bench, "b", tokens=1, deadline_s=NOW_S + 99, now_s=NOW_S + 61)
    assert holders(bench) == {"b": NOW_S + 99}


def test_who_asks_again_needs_another_free_token_and_has_one_after_that(bench: QueueBench) -> None:
    assert [take(bench, "a"), take(bench, "a", deadline_s=NOW_S + 70)] == [True, True]
    assert holders(bench) == {"a": NOW_S + 70}
    assert not take(bench, "a", tokens=1)


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REPLY, Act.CUT_BEFORE_REQUEST])
@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_reply_costs_no_token(act: Act, times: int, db: Any, shared_server: RedisServer) -> None:
    fault = ScriptFault("acquire", act, times=times)
    db.script_load(fault.text)
    with faulty_proxy(shared_server.socket_path, fault) as proxy, queue_bench(db, proxy.url) as bench:
        assert take(bench, "a", tokens=1)
        assert holders(bench) == {"a": NOW_S + 60}
        assert not take(bench, "b", tokens=1)


def test_a_redis_that_stays_away_is_an_error(db: Any, shared_server: RedisServer) -> None:
    fault = ScriptFault("acquire", Act.CUT_BEFORE_REQUEST, times=None)
    db.script_load(fault.text)
    with faulty_proxy(shared_server.socket_path, fault) as proxy, queue_bench(db, proxy.url) as bench:
        with pytest.raises(BrokerError, match="acquire"):
            take(bench, "a")
        assert holders(bench) == {}


def test_a_redis_that_refuses_is_an_error_at_once(bench: QueueBench, url: str) -> None:
    bench.db.set(KEY, "no set")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        take(bench, "a")
    broker = open_broker(url)
    with pytest.raises(BrokerError, match="ZREM"):
        broker.run(release_token("s", "a"))
    broker.close()
