"""Tasks for the tests of the backend."""

from collections.abc import Iterator
from typing import Any

from fastq.contrib.django import task
from fastq.errors import RevokeTask, Snooze


@task
def add(left: int, right: int = 1) -> int:
    return left + right


@task(queue_name="mail")
async def aadd(left: int, right: int = 1) -> int:
    return left + right


@task(max_retry=0)
def fail(text: str = "no") -> None:
    raise ValueError(text) from KeyError("cause")


@task(max_retry=1)
def fail_twice() -> None:
    raise SystemExit("at once")


@task
def revoke() -> None:
    raise RevokeTask


@task
def snooze() -> None:
    raise Snooze("later", after=60)


@task
def return_complex() -> Any:
    return {"a": complex(1, 2), "b": 3}


@task(takes_context=True)
def tell(context: Any, text: str) -> list[Any]:
    return [context.task_result.id, context.attempt, context.task_result.args, text]


@task(takes_context=True)
async def atell(context: Any, text: str) -> list[Any]:
    return [context.task_result.id, context.attempt, context.task_result.args, text]


def steps() -> Iterator[int]:
    yield 1


not_a_task = "a text"
