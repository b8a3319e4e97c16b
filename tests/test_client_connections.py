"""Connections of a client: its own and given ones, with threads, forks and interruptions."""

import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest
import redis
from redis import Redis

from fastq import Client, DuplicateTaskError, Task, TaskIDConflictError
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer, redis_server
from tests.test_client import PENDING, stored_message
from tests.waiting import PATIENCE_S, wait_until


def test_ping_and_close(db: Redis, url: str) -> None:
    client = Client(url)
    client.ping()
    client.close()
    client.close()


def test_close_leaves_no_connection(db: Redis, url: str) -> None:
    others = connections_named_fastq(db)
    with Client(url) as client:
        client.enqueue("t")
        assert len(connections_named_fastq(db) - others) == 1
    wait_until(lambda: connections_named_fastq(db) <= others)


def connections_named_fastq(db: Redis) -> set[str]:
    """Return the ids of those that there are; what other tests left may go at any time."""
    found: Any = db.client_list()
    return {each["id"] for each in found if each["name"] == "fastq"}


def test_the_context_manager_closes_after_an_error_too(db: Redis, url: str) -> None:
    others = connections_named_fastq(db)
    with suppress(ZeroDivisionError), Client(url) as client:
        client.enqueue("t")
        raise ZeroDivisionError
    wait_until(lambda: connections_named_fastq(db) <= others)


def test_a_given_client_is_never_closed(db: Redis, shared_server: RedisServer) -> None:
    with shared_server.client() as given:
        connection_id = given.client_id()
        with Client(given) as client:
            client.enqueue("t")
        client.close()
        assert given.client_id() == connection_id, "on the same connection"
        client.enqueue("t")
    assert db.llen(PENDING) == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"decode_responses": True},
        {"protocol": 3},
        {"protocol": 2},
        {"decode_responses": True, "protocol": 3},
        {"single_connection_client": True},
        {"encoding": "UTF8", "encoding_errors": "replace"},
    ],
)
def test_a_given_client_may_be_set_as_it_likes(settings: dict[str, Any], db: Redis, shared_server: RedisServer) -> None:
    with redis.Redis(unix_socket_path=shared_server.socket_path, **settings) as given:
        client = Client(given)
        assert client.enqueue("t", b"\xff\x00", task_id="ü", queue="日本").queue == "日本"
        with pytest.raises(TaskIDConflictError):
            client.enqueue("t", task_id="ü", queue="日本")
        client.enqueue("t", unique=60)
        with pytest.raises(DuplicateTaskError):
            client.enqueue("t", unique=60)
        assert client.enqueue_many([Task("t", task_id="a"), Task("t", task_id="a")]).enqueued == 1
        client.ping()
    assert stored_message(db, "ü", "日本").payload == b"\xff\x00"


def test_a_given_client_with_a_pool_that_waits(db: Redis, shared_server: RedisServer) -> None:
    make_pool: Any = redis.BlockingConnectionPool
    pool = make_pool(1, PATIENCE_S, connection_class=redis.UnixDomainSocketConnection, path=shared_server.socket_path)
    with redis.Redis(connection_pool=pool) as given:
        enqueue_from_threads(Client(given), threads=4, each=25)
        pool.disconnect()
    assert db.llen(PENDING) == 100


def test_a_given_client_that_would_write_other_names_is_refused() -> None:
    with (
        redis.Redis(encoding="latin-1") as given,
        pytest.raises(
            ValueError,
            match=r"^redis must be a client with encoding='utf-8', as names are on the wire, not 'latin-1'$",
        ),
    ):
        Client(given)


@pytest.mark.parametrize("given", [42, b"redis://", object(), ["redis://"]])
def test_what_is_no_redis_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^redis must be a URL, redis.Redis or redis.RedisCluster, not "):
        Client(given)


def test_without_an_argument_the_environment_names_the_redis(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTQ_REDIS_URL", url)
    with Client() as client:
        client.enqueue("t")
    assert db.llen(PENDING) == 1


def enqueue_from_threads(client: Client, threads: int, each: int) -> list[str]:
    ids: list[str] = []
    begin = threading.Barrier(threads)

    def run() -> None:
        begin.wait()
        ids.extend(client.enqueue("t", b"x").id for _ in range(each))

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return ids


def test_threads_share_a_client(db: Redis, url: str) -> None:
    with Client(url) as client:
        ids = enqueue_from_threads(client, threads=8, each=200)
    assert len(set(ids)) == 1600
    stored: list[Any] = db.lrange(PENDING, 0, -1)
    assert sorted(task_id.decode() for task_id in stored) == sorted(ids)


def test_more_threads_may_ask_at_once_than_redis_py_has_connections(db: Redis, url: str) -> None:
    with Client(url) as client:
        assert len(enqueue_from_threads(client, threads=150, each=3)) == 450


def test_threads_may_enqueue_many_on_one_client(db: Redis, url: str) -> None:
    with Client(url) as client:
        results: list[Any] = []

        def run(name: str) -> None:
            results.append(client.enqueue_many(Task("t", task_id=f"{name}-{n}") for n in range(1200)))

        running = [threading.Thread(target=run, args=(name,)) for name in "abcd"]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert [result.enqueued for result in results] == [1200] * 4
    assert db.llen(PENDING) == 4800


FORKS = """
import os, sys, time
import redis
from fastq import Client, Task

def connections():
    until = time.monotonic() + 60
    with redis.Redis.from_url(sys.argv[1]) as db:
        while True:
            count = sum(each["name"] == "fastq" for each in db.client_list())
            # Those of a client that was closed just now may not be gone yet.
            if count <= 2 or time.monotonic() > until:
                return count

with Client(sys.argv[1]) as client:
    client.enqueue("before")
    client.enqueue_many([Task("before")] * 3)
    told, tell = os.pipe()
    child = os.fork()
    if child:
        assert os.read(told, 1) == b"2", "the parent's connection and one of the child's own"
    else:
        client.enqueue("child")
        os.write(tell, b"%d" % connections())
    name = "parent" if child else "child"
    for _ in range(20):
        client.enqueue(name)
    client.enqueue_many([Task(name)] * 20)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_both_sides_of_a_fork_go_on_with_the_client() -> None:
    with redis_server() as server, server.client() as db:  # whose connections are theirs alone
        subprocess.run([sys.executable, "-c", FORKS, server.url], check=True)
        stored: list[Any] = db.lrange(PENDING, 0, -1)
        types = [stored_message(db, task_id.decode()).type for task_id in stored]
    assert len(stored) == len(set(stored)) == 85
    assert {name: types.count(name) for name in set(types)} == {"before": 4, "parent": 40, "child": 41}


class InterruptedByTestError(Exception):
    """Raised by a signal handler, as the one for Ctrl-C does."""


def functions_of(thread: int) -> list[str]:
    """Name the functions that a thread is in."""
    frame = sys._current_frames().get(thread)
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def test_an_interrupted_call_does_not_leave_its_reply_to_the_next(db: Redis, shared_server: RedisServer) -> None:
    def interrupt(_signal: int, _frame: object) -> None:
        raise InterruptedByTestError

    main, others = threading.get_ident(), connections_named_fastq(db)

    def interrupt_the_reading() -> None:
        wait_until(lambda: "_read_reply" in functions_of(main))
        signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    late = Fault("EVALSHA", Act.DELAY, then=interrupt_the_reading)
    try:
        with faulty_proxy(shared_server.socket_path) as proxy, Client(proxy.url) as client:
            client.enqueue("t", b"1", task_id="taken")
            proxy.faults.append(late)
            with pytest.raises(InterruptedByTestError):
                client.enqueue("t", b"2", task_id="a")
            late.until.set()
            with pytest.raises(TaskIDConflictError):
                client.enqueue("t", b"3", task_id="taken")
            wait_until(lambda: len(connections_named_fastq(db) - others) == 1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_client_can_be_used_after_close(db: Redis, url: str) -> None:
    """redis-py's pool opens new connections; nothing is gained by refusing."""
    client = Client(url)
    client.enqueue("t")
    client.close()
    client.enqueue("t")
    client.close()
    assert db.llen(PENDING) == 2
