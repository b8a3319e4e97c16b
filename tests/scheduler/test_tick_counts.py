"""Ticks are counted in Redis once, also when it refuses them or its reply is lost."""

import pytest
from redis import Redis

from fastq.broker.operations.schedulers import TickOutcome
from fastq.broker.scripts import SCRIPTS
from fastq.broker.transport.open import open_broker
from fastq.scheduler.tick_counts import PAUSE_S, TickCounts
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer
from tests.scheduler.harness import tick_counts

LOST = Fault("EVALSHA", Act.CUT_BEFORE_REPLY)
REFUSED = Fault("EVALSHA", Act.ANSWER, answer=b"-NOPERM User default has no permissions\r\n")


@pytest.mark.parametrize(("fault", "counted"), [(LOST, [2, 2, 3]), (REFUSED, [0, 0, 3])], ids=["lost", "refused"])
def test_what_redis_may_have_counted_is_not_sent_again_and_what_it_refused_is(
    shared_server: RedisServer, db: Redis, fault: Fault, counted: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    counts, found = TickCounts(), []
    db.script_load(SCRIPTS["count_ticks"].text)
    with faulty_proxy(shared_server.socket_path) as proxy:
        broker = open_broker(proxy.url)
        proxy.faults.append(fault)
        counts.note(TickOutcome.MISSED, "mail:send", 2)
        for now_s in (0.0, PAUSE_S - 1, 3 * PAUSE_S):
            counts.write(broker, now_s)
            found.append(tick_counts(db).get("missed:mail:send", 0))
            if not now_s:
                counts.note(TickOutcome.MISSED, "mail:send")
        broker.close()
    assert found == counted
    assert caplog.text.count("ticks could not be counted in Redis") == 1
