"""The features of Celery that work, differ or are not supported, for error messages and ``fastq celery check``."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Level(StrEnum):
    """How far a feature of Celery is supported."""

    WORKS = "works"
    DIFFERS = "differs"
    UNSUPPORTED = "unsupported"


class Use(NamedTuple):
    """How far a feature of Celery is supported, and what differs or what to write instead."""

    level: Level
    note: str = ""


def _works(*names: str) -> dict[str, Use]:
    return dict.fromkeys(names, Use(Level.WORKS))


def _differs(**notes: str) -> dict[str, Use]:
    return {name: Use(Level.DIFFERS, note) for name, note in notes.items()}


def _unsupported(**notes: str) -> dict[str, Use]:
    return {name: Use(Level.UNSUPPORTED, note) for name, note in notes.items()}


UNKNOWN: Final = Use(Level.UNSUPPORTED, "the names of fastq.contrib.celery are all that is supported")

_CANVAS: Final = "let the first task send the next ones, or give it a link"
_LIMITS: Final = "fastq stops a task at the limit, and kills its process timeout_grace (5 s) later"
_FIXED: Final = "a task is always acknowledged when it has run, arguments are always JSON"
_SETTINGS: Final = "settings are options of fastq-worker, or arguments of Celery"
_SIGNALS: Final = "use app.child_start, app.child_stop and app.around, or error_handler"

OF_DECORATOR: Final[Mapping[str, Use]] = {
    **_works("name", "bind", "max_retries", "default_retry_delay", "retry_kwargs", "queue", "ignore_result"),
    **_works("autoretry_for", "dont_autoretry_for", "retry_backoff", "retry_backoff_max", "retry_jitter"),
    **_works("acks_late", "reject_on_worker_lost", "track_started", "serializer", "expires"),
    **_differs(
        rate_limit="it holds for all workers together, in the task's own queue, and needs no worker to wait",
        soft_time_limit=f"{_LIMITS}; TaskTimeout is no Exception",
        time_limit=_LIMITS,
    ),
    **_unsupported(
        base="write the hooks as app.around or error_handler",
        priority="use a queue with a weight: --queues high=5,default=1",
        pydantic="use @app.task of a fastq.App, which takes pydantic models",
        routing_key="use queue",
        throws="use is_failure",
        typing="arguments are always checked",
    ),
}
OF_CALL: Final[Mapping[str, Use]] = {
    **_works("args", "kwargs", "countdown", "eta", "expires", "queue", "ignore_result", "serializer"),
    **_differs(
        headers="values must be text",
        link="a linked task is enqueued at least once; it must be a signature of fastq.contrib.celery",
        soft_time_limit=f"{_LIMITS}; TaskTimeout is no Exception",
        task_id="an id that is taken in the queue raises TaskIDConflictError",
        time_limit=_LIMITS,
    ),
    **_unsupported(
        chord=_CANVAS,
        compression="store large data elsewhere, and send its place",
        connection="set the broker of the Celery app",
        exchange="use queue",
        group_id=_CANVAS,
        link_error="use error_handler, which gets every failed attempt",
        priority="use a queue with a weight: --queues high=5,default=1",
        producer="set the broker of the Celery app",
        retries="a task begins with none",
        retry="enqueueing raises BrokerError; try again where you call it",
        retry_policy="enqueueing raises BrokerError; try again where you call it",
        routing_key="use queue",
        shadow="use name",
    ),
}
OF_RETRY: Final[Mapping[str, Use]] = {
    **_works("exc", "countdown", "eta", "max_retries"),
    **_unsupported(
        args="a retried task keeps its arguments: send a new one",
        kwargs="a retried task keeps its arguments: send a new one",
        queue="a retried task stays in its queue: send a new one",
        throw="retry always raises",
    ),
}
OF_TASK: Final[Mapping[str, Use]] = {
    **_works("delay", "apply_async", "s", "si", "retry", "request", "name", "run", "app", "max_retries"),
    **_works("queue", "ignore_result", "default_retry_delay", "expires", "soft_time_limit", "time_limit"),
    **_unsupported(
        AsyncResult="write AsyncResult(id)",
        apply_async_on_commit="write transaction.on_commit(lambda: task.delay(...))",
        apply="call the function, or set app.client = InlineClient(app) in tests",
        backend="results are kept beside the tasks",
        chunks=_CANVAS,
        delay_on_commit="write transaction.on_commit(lambda: task.delay(...))",
        map="send one task for each",
        on_failure="use error_handler",
        replace="send the other task",
        signature="write s(...)",
        starmap="send one task for each",
        subtask="write s(...)",
        update_state="write fastq.current_task().progress(current, total)",
    ),
}
OF_REQUEST: Final[Mapping[str, Use]] = {
    **_works("id", "task", "args", "kwargs", "retries", "called_directly"),
    **_differs(headers="those of the call only", delivery_info="only routing_key: the queue"),
}
OF_SIGNATURE: Final[Mapping[str, Use]] = {
    **_works("set", "delay", "apply_async", "message"),
    **_unsupported(clone="make another one by s(...)", link="write set(link=...)", on_error="use error_handler"),
}
OF_RESULT: Final[Mapping[str, Use]] = {
    **_works("id", "task_id", "state", "status", "ready", "successful", "failed", "result", "traceback"),
    **_differs(
        get="a failed task raises TaskFailedError, whose error_class names the class",
        revoke="the task is deleted; its state is REVOKED for the object that revoked it, else PENDING",
    ),
    **_unsupported(
        collect=_CANVAS,
        children=_CANVAS,
        forget="set result_expires or ignore_result",
        info="write result",
        parent=_CANVAS,
        then="wait for it by get",
        wait="write get",
    ),
}
OF_APP: Final[Mapping[str, Use]] = {
    **_works("task", "send_task", "AsyncResult", "client"),
    **_differs(autodiscover_tasks="outside of Django, modules are imported at once: call it at the end of the module"),
    **_unsupported(
        add_periodic_task="use fastq.Scheduler",
        conf=_SETTINGS,
        config_from_object=_SETTINGS,
        control="use fastq server, fastq task cancel, or fastq.Inspector",
        now="use datetime.now(UTC)",
        on_after_configure="use fastq.Scheduler for periodic tasks",
        on_after_finalize="use fastq.Scheduler for periodic tasks",
        register_task="decorate a function",
        set_default="the app that was made last is the current one",
        signature="write task.s(...)",
        start="run fastq-worker",
        worker_main="run fastq-worker",
    ),
}
OF_APP_ARGUMENTS: Final[Mapping[str, Use]] = {
    **_works("main", "broker"),
    **_differs(result_expires="an argument of Celery here"),
    **_unsupported(
        backend="results are kept beside the tasks: leave it out",
        config_source=_SETTINGS,
        include="call autodiscover_tasks, or import the modules, below the app",
        task_cls="write the hooks as app.around or error_handler",
    ),
}
OF_IMPORT: Final[Mapping[str, Mapping[str, Use]]] = {
    "celery": {
        **_works("Celery", "shared_task"),
        **_differs(Task="for annotations; it is not to be inherited from"),
        **_unsupported(
            chain=_CANVAS,
            chord=_CANVAS,
            chunks=_CANVAS,
            current_app="import your app",
            current_task="use fastq.current_task()",
            group="send the tasks in a loop, or use client.submit_many and gather of typed tasks",
            signals=_SIGNALS,
            signature="write task.s(...), or app.send_task(name, args)",
        ),
    },
    "celery.app.task": _differs(Task="for annotations; it is not to be inherited from"),
    "celery.exceptions": {
        **_works("MaxRetriesExceededError", "Retry", "TaskRevokedError"),
        **_differs(
            Ignore="the task is deleted",
            Reject="the task is archived; it is put back with requeue and acks_late, a second later",
            SoftTimeLimitExceeded="it is TaskTimeout, which is no Exception",
            TimeoutError="it is Python's TimeoutError",
        ),
    },
    "celery.result": _works("AsyncResult"),
    "celery.schedules": _unsupported(
        crontab='use fastq.Scheduler: "0 6 * * mon-fri"', schedule='use fastq.Scheduler: "@every 30s"'
    ),
    "celery.signals": {},
    "celery.utils.log": _works("get_task_logger"),
}


OF_SETTING: Final[Mapping[str, Use]] = _unsupported(
    accept_content="arguments are always JSON",
    beat_schedule="use fastq.Scheduler",
    beat_scheduler="use fastq.Scheduler",
    broker_url="write Celery(broker=…), or set FASTQ_REDIS_URL",
    result_backend="results are kept beside the tasks",
    result_expires="write Celery(result_expires=…)",
    schedule="use fastq.Scheduler",
    task_acks_late="a task is always acknowledged when it has run",
    task_always_eager="set app.client = InlineClient(app) in tests: else they send to Redis",
    task_annotations="write the options at each task",
    task_default_queue="write queue=… at each task",
    task_eager_propagates="InlineClient(app, raise_errors=True)",
    task_ignore_result="write ignore_result=True at each task",
    task_queues="name them with fastq-worker --queues",
    task_routes="write queue=… at each task",
    task_serializer="arguments are always JSON",
    task_soft_time_limit="write soft_time_limit=… at each task: else it is half an hour",
    task_time_limit="write time_limit=… at each task: else it is half an hour",
    timezone="Scheduler(tz=…) for periodic tasks; times without a zone are in UTC",
    worker_concurrency="use fastq-worker --concurrency",
    worker_max_tasks_per_child="use fastq-worker --max-tasks-per-child",
)
OF_PACKAGE: Final[Mapping[str, Use]] = {
    "billiard": Use(Level.UNSUPPORTED, "import SoftTimeLimitExceeded from fastq.contrib.celery; others do not occur"),
    "celery_once": Use(Level.UNSUPPORTED, "write @app.task(unique=…) of a fastq.App"),
    "celery_singleton": Use(Level.UNSUPPORTED, "write @app.task(unique=…) of a fastq.App"),
    "django_celery_beat": Use(Level.UNSUPPORTED, "its schedules would just stop: use fastq.Scheduler"),
    "django_celery_results": Use(Level.UNSUPPORTED, "results are kept beside the tasks, for result_expires"),
    "djcelery": Use(Level.UNSUPPORTED, "use fastq.contrib.celery, and fastq.Scheduler"),
    "kombu": Use(Level.UNSUPPORTED, "queues have names only: write queue=…, and fastq-worker --queues"),
    "sentry_sdk.integrations.celery": Use(Level.UNSUPPORTED, "use error_handler, as docs/sentry-structlog.md shows"),
}


def unknown_option(what: str, name: str, value: object, uses: Mapping[str, Use]) -> str:
    """Return the text of an error: ``what`` does not take an option, or not with this value."""
    use = uses.get(name)
    if use is not None and use.level is not Level.UNSUPPORTED:
        return f"{what} cannot have {name}={value!r}: {use.note or _FIXED}"
    return f"{what} has no option {name!r}" + (f": {use.note}" if use is not None else "")


def no_such_attribute(thing: object, what: str, uses: Mapping[str, Use], name: str) -> AttributeError:
    """Return the error for an attribute that is not supported."""
    use = uses.get(name)
    note = f": {use.note}" if use is not None and use.note else ""
    return AttributeError(f"{what} has no {name!r}{note}", name=name, obj=thing)
