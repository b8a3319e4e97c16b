"""The handler of a typed task: the payload becomes arguments, the function's result one that can be kept."""

import inspect
from collections.abc import Callable
from typing import Any

from fastq.app.annotations import result_encoder
from fastq.app.context import enter_context
from fastq.app.payload import Payload
from fastq.mux import Handler, is_async

__all__ = ["handler_of"]


def handler_of(function: Callable[..., Any], payload: Payload, env: Callable[[], Any]) -> Handler:
    """Return the handler that a mux runs for a function, async if that is; ``env`` returns what its context holds."""
    made = _with_context(function, payload, env) if payload.takes_context else _without_context(function, payload)
    encode = result_encoder(payload.result)
    handler = made if encode is None else _with_result(made, encode)
    handler.__qualname__ = handler.__name__ = getattr(function, "__qualname__", repr(function))
    return handler


def _without_context(function: Callable[..., Any], payload: Payload) -> Callable[[Any], Any]:
    decode = payload.decode

    if is_async(function):

        async def handle_async(task: Any, /) -> Any:
            return await function(**decode(task.payload))

        return handle_async

    def handle(task: Any, /) -> Any:
        return function(**decode(task.payload))

    return handle


def _with_context(function: Callable[..., Any], payload: Payload, env: Callable[[], Any]) -> Callable[[Any], Any]:
    decode = payload.decode

    if is_async(function):

        async def handle_async(task: Any, /) -> Any:
            return await function(enter_context(task, env()), **decode(task.payload))

        return handle_async

    def handle(task: Any, /) -> Any:
        return function(enter_context(task, env()), **decode(task.payload))

    return handle


def _with_result(handler: Callable[[Any], Any], encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if inspect.iscoroutinefunction(handler):

        async def handle_async(task: Any, /) -> Any:
            return encode(await handler(task))

        return handle_async

    def handle(task: Any, /) -> Any:
        return encode(handler(task))

    return handle
