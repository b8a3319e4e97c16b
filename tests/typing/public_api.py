"""What a type checker knows of the public names; read by mypy, never run.

Where a line is wrong on purpose its ``type: ignore`` must be needed: mypy reports one that is not.
"""

from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, assert_type

import redis
import redis.asyncio

import fastq
from fastq import (
    AsyncClient,
    AsyncInspector,
    BrokerAuthError,
    BrokerConnectionError,
    BrokerError,
    BrokerTimeoutError,
    Client,
    ClientMiddleware,
    Drain,
    DuplicateTaskError,
    EnqueueOptions,
    EnqueueResults,
    FastqError,
    GroupedTask,
    GroupInfo,
    Handler,
    Hooks,
    Inspector,
    InvalidMessageError,
    Middleware,
    Moved,
    PayloadCodec,
    PeriodicTaskConfig,
    PeriodicTaskManager,
    Progress,
    QueueInfo,
    RunningTask,
    Scheduler,
    Semaphore,
    Sender,
    ServeMux,
    Server,
    ServerInfo,
    Task,
    TaskEvent,
    TaskFilter,
    TaskIDConflictError,
    TaskInfo,
    TaskNotFoundError,
    TaskState,
    cron,
)
from fastq.testing import (
    AsyncInlineClient,
    InlineClient,
    RunOutcome,
    TaskRun,
    assert_enqueued,
    drain,
    embedded_redis,
    run_task,
)
from fastq.wire.codec import TaskMessage, decode_task_message, encode_task_message

T = TypeVar("T")


def a_task_has_typed_parts() -> None:
    task = Task("t", {"any": "thing"}, headers={"a": "1"}, queue="low", unique=timedelta(hours=1))
    assert_type(task.type, str)
    assert_type(task.payload, bytes)
    assert_type(task.headers, Mapping[str, str])
    assert_type(task.json(), Any)
    Task()  # type: ignore[call-arg]  # a type is needed
    Task(b"t")  # type: ignore[arg-type]  # text
    Task("t", headers=[("a", "1")])  # type: ignore[arg-type]  # a mapping
    Task("t", headers={"a": 1})  # type: ignore[dict-item]  # of text to text


def a_scheduler_takes_what_is_to_be_enqueued_and_when() -> None:
    def post_enqueue(info: TaskInfo | None, error: Exception | None) -> None: ...

    scheduler = Scheduler("redis://", "Europe/Paris", timedelta(seconds=10), post_enqueue=post_enqueue)
    assert_type(scheduler.register("@daily", "t", "name", "UTC", "once", queue="low"), str)
    scheduler.register("@daily", 5)  # type: ignore[arg-type]  # a Task or a type
    Scheduler(pre_enqueue=post_enqueue)  # type: ignore[arg-type]  # of other parameters
    PeriodicTaskManager(lambda: [PeriodicTaskConfig("@daily", "t", {"queue": "low"})], location="UTC")
    PeriodicTaskManager(lambda: ["@daily"])  # type: ignore[list-item]  # configurations
    PeriodicTaskManager(list, colour="red")  # type: ignore[call-arg]  # no option of a scheduler
    assert_type(cron.parse("@daily").next(datetime.now()), datetime | None)
    assert_type(cron.parse("@daily"), cron.Schedule)


def a_client_takes_what_is_a_redis() -> None:
    Client()
    Client(None)
    Client("redis://127.0.0.1:6379/0")
    Client(redis.Redis())
    Client(redis.asyncio.Redis())  # type: ignore[arg-type]  # for AsyncClient
    Client(42)  # type: ignore[arg-type]  # nothing that leads to a Redis
    AsyncClient(redis.asyncio.Redis())
    AsyncClient(redis.Redis())  # type: ignore[arg-type]  # for Client


def a_client_returns_typed_things(client: Client, tasks: Iterator[Task]) -> None:
    assert_type(client.enqueue("t"), TaskInfo)
    assert_type(client.enqueue(Task("t"), task_id="a", process_in=5, max_retry=3), TaskInfo)
    assert_type(client.enqueue("t", {"any": "thing"}), TaskInfo)
    assert_type(client.enqueue_many(tasks, queue="low"), EnqueueResults)
    assert_type(client.enqueue_many([Task("t")]), EnqueueResults)
    client.enqueue(7)  # type: ignore[arg-type]  # neither a task nor a type
    client.enqueue_many(["t"])  # type: ignore[list-item]  # tasks, not types
    client.enqueue_many(Task("t"))  # type: ignore[arg-type]  # tasks, not one
    with client as same:
        assert_type(same, Client)


async def an_async_client_returns_typed_things(client: AsyncClient, tasks: Iterator[Task]) -> None:
    assert_type(await client.enqueue("t"), TaskInfo)
    assert_type(await client.enqueue_many(tasks), EnqueueResults)
    not_awaited: str = client.enqueue("t").id  # type: ignore[attr-defined]  # a coroutine has none
    del not_awaited
    async with client as same:
        assert_type(same, AsyncClient)


def options_are_known_by_name_and_type(client: Client, scheduler: Scheduler, tasks: list[Task]) -> None:
    options: EnqueueOptions = {"queue": "low", "timeout": timedelta(minutes=1), "deadline": None}
    client.enqueue("t", None, **options)
    client.enqueue("t", headers={"a": "1"}, process_in=0.5, unique=60, unique_key="k", group="g", retention=5)
    client.enqueue("t", timout=5)  # type: ignore[call-arg]  # did you mean "timeout"?
    client.enqueue("t", max_retry="three")  # type: ignore[arg-type]  # a number
    client.enqueue("t", process_at="tomorrow")  # type: ignore[arg-type]  # a datetime
    client.enqueue_many(tasks, timout=5)  # type: ignore[call-arg]
    Task("t", timout=5)  # type: ignore[call-arg]
    scheduler.register("@daily", "t", timout=5)  # type: ignore[call-arg]
    PeriodicTaskConfig("@daily", "t", {"timout": 5})  # type: ignore[typeddict-unknown-key]


async def options_are_known_to_an_async_client(client: AsyncClient, tasks: list[Task]) -> None:
    await client.enqueue("t", timeout=5)
    await client.enqueue("t", timout=5)  # type: ignore[call-arg]
    await client.enqueue_many(tasks, timout=5)  # type: ignore[call-arg]


def options_are_known_to_the_testing_aids(mux: ServeMux, inline: InlineClient) -> None:
    run_task(mux, "t", timout=5)  # type: ignore[call-arg]
    inline.enqueue("t", timout=5)  # type: ignore[call-arg]
    inline.enqueue_many([Task("t")], timout=5)  # type: ignore[call-arg]


def middleware_of_clients_is_typed(client: Client, async_client: AsyncClient, inline: InlineClient) -> None:
    def plain(send: Sender) -> Sender:
        def enqueue(tasks: Sequence[Task]) -> EnqueueResults:
            assert_type(send(tasks), EnqueueResults)
            return send([task.replace(queue="low") for task in tasks])

        return enqueue

    def waiting(send: Sender[Awaitable[EnqueueResults]]) -> Sender[Awaitable[EnqueueResults]]:
        async def enqueue(tasks: Sequence[Task]) -> EnqueueResults:
            return await send(tasks)

        return enqueue

    def either(send: Sender[T]) -> Sender[T]:
        return lambda tasks: send([task.replace(b"x", timeout=5) for task in tasks])

    first: ClientMiddleware = plain
    client.use(first, either)
    inline.use(plain)
    async_client.use(waiting, either)
    client.use(waiting)  # type: ignore[arg-type]  # nobody awaits it
    async_client.use(plain)  # type: ignore[arg-type]  # it returns nothing to be awaited
    client.use(plain(client._send))  # type: ignore[arg-type]  # a sender, no middleware
    Task("t").replace(timout=5)  # type: ignore[call-arg]
    Task("t").replace({"a": 1})  # type: ignore[arg-type]  # bytes


def codecs_are_typed(task: RunningTask) -> None:
    class Codec:
        content_type = "text/plain"

        def encode(self, value: object) -> bytes:
            return str(value).encode()

        def decode(self, data: bytes) -> str:
            return data.decode()

    class Nameless:
        encode, decode = Codec.encode, Codec.decode

    codec: PayloadCodec = Codec()
    Client(codec=codec).enqueue(Task("t", 5, codec=Codec()))
    AsyncClient(codec=Codec())
    InlineClient(ServeMux(), codec=Codec())
    assert_type(task.decode(codec), Any)
    Client(codec=Nameless())  # type: ignore[arg-type]  # no content type
    Client(codec=Codec)  # type: ignore[arg-type]  # an instance


def results_are_a_sequence(results: EnqueueResults) -> None:
    assert_type(results[0], TaskInfo | FastqError)
    assert_type(results[1:3], list[TaskInfo | FastqError])
    assert_type(list(results), list[TaskInfo | FastqError])
    assert_type(len(results), int)
    assert_type(results.enqueued, int)
    assert_type(results.ids(), Iterator[str])
    assert_type(results.errors(), Iterator[tuple[int, FastqError]])
    first_id: str = results[0].id  # type: ignore[union-attr]  # it may be an error
    del first_id
    for result in results:
        if isinstance(result, TaskInfo):
            assert_type(result.id, str)
        else:
            assert_type(result, FastqError)


def an_info_has_typed_fields(info: TaskInfo) -> None:
    assert_type(info.id, str)
    assert_type(info.payload, bytes)
    assert_type(info.headers, Mapping[str, str])
    assert_type(info.state, TaskState)
    assert_type(info.max_retry, int)
    assert_type(info.timeout, timedelta)
    assert_type(info.deadline, datetime | None)
    assert_type(info.next_process_at, datetime | None)
    assert_type(info.retention, timedelta)
    assert_type(info.result, bytes | None)
    info.id = "b"  # type: ignore[misc]  # frozen


def errors_have_families() -> None:
    families: list[type[FastqError]] = [BrokerError, DuplicateTaskError, TaskIDConflictError, InvalidMessageError]
    brokers: list[type[BrokerError]] = [BrokerAuthError, BrokerConnectionError, BrokerTimeoutError]
    as_python_has_them: tuple[type[ConnectionError], type[TimeoutError], type[PermissionError], type[LookupError]] = (
        BrokerConnectionError,
        BrokerTimeoutError,
        BrokerAuthError,
        TaskNotFoundError,
    )
    del families, brokers, as_python_has_them


def errors_have_facts(conflict: TaskIDConflictError, broken: BrokerError) -> None:
    assert_type(conflict.queue, str)
    assert_type(conflict.task_id, str)
    assert_type(broken.operation, str)
    assert_type(broken.maybe_applied, bool)


def the_codec_takes_bytes_and_gives_messages(data: bytes, view: memoryview) -> None:
    message = decode_task_message(data)
    assert_type(message, TaskMessage)
    assert_type(decode_task_message(view), TaskMessage)
    assert_type(encode_task_message(message), bytes)
    assert_type(message.headers, Mapping[str, str])
    decode_task_message("text")  # type: ignore[arg-type]  # bytes
    TaskMessage(retry="3")  # type: ignore[arg-type]  # a number


async def a_semaphore_limits_handlers(plain: Handler, task: RunningTask) -> None:
    app = fastq.App()
    app.limit("*", queue="crawl", concurrency=2, rate="5/s")
    app.limit(None, concurrency=9)
    app.limit("acme", per=2)  # type: ignore[call-arg]  # no part of a limit
    fastq.Client().set_limit("crawl", "acme", rate="5/s", burst=2, weight=3)
    assert_type(fastq.Inspector().lanes("crawl"), tuple[list[fastq.LaneInfo], str])
    assert_type(fastq.Inspector().set_limit("crawl", None, fastq.Limit.parse("2")), bool)
    fastq.Inspector().set_limit("crawl", "acme", "2")  # type: ignore[arg-type]  # a Limit
    semaphore = Semaphore("api", 3, "redis://127.0.0.1:6379/0")
    assert_type(semaphore.acquire(), bool)
    assert_type(semaphore.release(task), bool)
    assert_type(semaphore.held(), int)
    with semaphore as held:
        assert_type(held, Semaphore)
    async with semaphore as held:
        assert_type(held, Semaphore)
    ServeMux().use(semaphore.middleware)
    ServeMux().handle("t", semaphore.middleware(plain))
    Semaphore("api", 3, redis.asyncio.Redis())  # type: ignore[arg-type]  # a blocking one
    Semaphore("api")  # type: ignore[call-arg]  # how many


def a_mux_has_handlers_of_running_tasks(task: RunningTask, grouped: GroupedTask, server: Server) -> None:
    mux = ServeMux()

    @mux.handler("image:resize")
    def resize(task: RunningTask) -> dict[str, int]:
        return {"attempt": task.retried}

    def quiet(next: Handler) -> Handler:
        return lambda task: next(task) if task.retried else None

    middleware: Middleware = quiet
    mux.use(middleware)
    mux.include(ServeMux())
    mux.include("tasks:mux")  # type: ignore[arg-type]  # a mux
    assert_type(resize(task), dict[str, int])
    assert_type(grouped.id, str)
    assert task.retires  # type: ignore[attr-defined]  # it has retried
    assert Task("t").retried  # type: ignore[attr-defined]  # what is not running has no attempts
    server.quiet()
    server.stop()
    fastq.Clinet()  # type: ignore[attr-defined]  # that some names are imported later hides no mistake


def an_inspector_returns_typed_things(inspector: Inspector) -> None:
    assert_type(inspector.queues(), list[str])
    assert_type(inspector.get_queue_info("q"), QueueInfo)
    assert_type(inspector.groups("q"), list[GroupInfo])
    assert_type(inspector.servers(), list[ServerInfo])
    assert_type(inspector.get_task_info("q", "id"), TaskInfo)
    assert_type(inspector.list_tasks("q", "retry"), list[TaskInfo])
    assert_type(inspector.list_aggregating_tasks("q", "g", page=2), list[TaskInfo])
    assert_type(inspector.iter_tasks("q", TaskState.ARCHIVED), Iterator[TaskInfo])
    assert_type(inspector.delete_all_pending_tasks("q"), int)
    assert_type(inspector.follow("q"), Iterator[TaskEvent])
    assert_type(inspector.export_tasks("q", where=TaskFilter(type="mail:*")), Iterator[str])
    assert_type(inspector.drain_queue("q", progress=lambda now: now.left), Drain)
    assert_type(inspector.retry_tasks("q", progress=lambda now: now.done), int)
    assert_type(inspector.carry_out(inspector.plan_retry("q")), Progress)
    inspector.retry_tasks("q", wher=TaskFilter())  # type: ignore[call-arg]  # where=
    inspector.delete_task("q", "id", expected=1)  # type: ignore[arg-type]  # a state
    inspector.list_pending_tasks("q", 2)  # type: ignore[call-arg]  # page=2
    Inspector(redis.asyncio.Redis())  # type: ignore[arg-type]  # for AsyncInspector


async def an_async_inspector_is_awaited(inspector: AsyncInspector) -> None:
    assert_type(await inspector.list_tasks("q", "retry"), list[TaskInfo])
    assert_type(await inspector.list_retry_tasks("q"), list[TaskInfo])
    assert_type(await inspector.run_all_retry_tasks("q"), int)
    assert_type(inspector.iter_tasks("q", "retry"), AsyncIterator[TaskInfo])
    assert_type(await inspector.move_tasks("a", "b"), Moved)
    assert_type(inspector.find_tasks("q", "retry", TaskFilter()), AsyncIterator[TaskInfo])
    await inspector.iter_tasks("q", "retry")  # type: ignore[misc]  # async for


def the_testing_aids_are_typed(mux: ServeMux, client: Client) -> None:
    run = run_task(mux, "t", {"any": "thing"}, retried=1, hooks=Hooks(is_failure=lambda error: False), queue="low")
    assert_type(run, TaskRun)
    assert_type(run.outcome, RunOutcome)
    assert_type(run.result, bytes | None)
    assert_type(run.error, BaseException | None)
    assert_type(drain(mux, "redis://127.0.0.1:6379/0", scheduled=True), list[TaskRun])
    assert_type(assert_enqueued(client, "t", payload=[1], queue="low"), list[TaskInfo])
    inline = InlineClient(mux)
    assert_type(inline.enqueue("t"), TaskInfo)
    assert_type(inline.enqueue_many([Task("t")]), EnqueueResults)
    assert_type(assert_enqueued(inline, "t", count=1), list[TaskInfo])
    a_client_returns_typed_things(inline, iter(()))
    an_async_inline: AsyncClient = AsyncInlineClient(mux)
    assert_enqueued(AsyncInlineClient(mux), "t")
    assert_enqueued(an_async_inline, "t")  # type: ignore[arg-type]  # it may have a Redis, and nobody waits here
    with embedded_redis() as url:
        assert_type(url, str)
    run_task("app:mux", "t")  # type: ignore[arg-type]  # a mux
    assert_enqueued(mux, "t")  # type: ignore[arg-type]  # no place of tasks
