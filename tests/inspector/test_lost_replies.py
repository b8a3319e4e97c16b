"""When a reply is lost: what only reads is asked again, what changes something is not, and the error says so."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq import BrokerConnectionError
from fastq.broker.scripts import SCRIPTS
from tests.broker.harness import NOW_S
from tests.cutting_proxy import CuttingProxy, cutting_proxy
from tests.inspector.harness import FACES, Ask, Seeded
from tests.redis_servers import RedisServer


@pytest.fixture
def proxy(shared_server: RedisServer, db: Redis) -> Iterator[CuttingProxy]:
    with cutting_proxy(shared_server.socket_path) as proxy:
        yield proxy


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, proxy: CuttingProxy) -> Ask:
    return FACES[request.param](f"redis://127.0.0.1:{proxy.port}")


def lose_reply_of(proxy: CuttingProxy, db: Redis, script: str) -> None:
    load: Any = db.script_load  # else the first reply is that Redis does not know it
    load(SCRIPTS[script].text)
    proxy.marker = SCRIPTS[script].sha.encode()


@pytest.mark.parametrize(
    ("script", "call"),
    [
        ("queue_stats", ("get_queue_info", "default")),
        ("read_tasks", ("get_task_info", "default", "it")),
        ("read_tasks", ("list_retry_tasks", "default")),
        ("list_groups", ("groups", "default")),
        ("read_lanes", ("get_lane", "default", "acme")),
    ],
)
def test_what_only_reads_is_asked_again(
    ask: Ask, queue: Seeded, proxy: CuttingProxy, script: str, call: tuple[str, ...]
) -> None:
    queue.add("retry", {"it": NOW_S})
    lose_reply_of(proxy, queue.db, script)
    with pytest.raises(BrokerConnectionError):
        ask(*call)
    assert proxy.times_seen == 4


@pytest.mark.parametrize(
    ("script", "call", "places"),
    [
        ("delete_task", ("delete_task", "default", "a"), {"retry": ["b", "c"]}),
        ("archive_task", ("archive_task", "default", "a"), {"retry": ["b", "c"], "archived": ["a"]}),
        ("run_task", ("run_task", "default", "a"), {"retry": ["b", "c"], "pending": ["a"]}),
        ("delete_tasks", ("delete_all_retry_tasks", "default"), {}),
        ("run_tasks", ("run_all_retry_tasks", "default"), {"pending": ["c", "b", "a"]}),
        ("archive_tasks", ("archive_all_retry_tasks", "default"), {"archived": ["a", "b", "c"]}),
    ],
)
def test_what_changes_something_is_done_once_and_the_error_says_that_it_may_be_done(
    ask: Ask,
    queue: Seeded,
    proxy: CuttingProxy,
    script: str,
    call: tuple[str, ...],
    places: dict[str, list[str]],
) -> None:
    queue.add("retry", {"a": 1, "b": 2, "c": 3})
    lose_reply_of(proxy, queue.db, script)
    with pytest.raises(BrokerConnectionError) as error:
        ask(*call)
    assert (error.value.operation, error.value.maybe_applied) == (script, True)
    assert proxy.times_seen == 1
    assert queue.places() == places


def test_a_queue_whose_closing_nobody_answered_is_not_deleted(ask: Ask, queue: Seeded, proxy: CuttingProxy) -> None:
    lose_reply_of(proxy, queue.db, "close_queue")
    with pytest.raises(BrokerConnectionError) as error:
        ask("delete_queue", "default")
    assert (error.value.operation, error.value.maybe_applied, proxy.times_seen) == ("close_queue", True, 1)
    assert ask("queues") == ["default"]
