"""The handler of a typed task: it turns the payload into arguments, and the result into a form that can be stored."""

from collections.abc import Callable
from typing import Any

from fastq.app.annotations import result_encoder
from fastq.app.context import enter_context
from fastq.app.payload import Payload
from fastq.common.callables import is_async
from fastq.hooks import FailureRule
from fastq.mux import Handler
from fastq.running import RunningTask


def handler_of(
    function: Callable[..., Any], payload: Payload, env: Callable[[], Any], rule: FailureRule | None
) -> Handler:
    """Return a mux's handler for a function, async if the function is; ``env`` returns the value for its context."""
    call = _calling_with_context(function, payload, env) if payload.takes_context else payload.caller(function)
    if rule is not None:
        call = _ruled(call, rule)
    encode = result_encoder(payload.result)
    handler: Any = _awaiting(call, encode) if is_async(function) else _returning(call, encode)
    handler.function = function
    handler.__qualname__ = handler.__name__ = getattr(function, "__qualname__", repr(function))
    made: Handler = handler
    return made


def _calling_with_context(
    function: Callable[..., Any], payload: Payload, env: Callable[[], Any]
) -> Callable[[Any], Any]:
    return lambda task: function(enter_context(task, env()), **payload.decode(task.payload))


def _ruled(call: Callable[[Any], Any], rule: FailureRule) -> Callable[[Any], Any]:
    def ruled(task: RunningTask, /) -> Any:
        task._rule = rule
        return call(task)

    return ruled


def _returning(call: Callable[[Any], Any], encode: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if encode is None:
        return call
    return lambda task: encode(call(task))


def _awaiting(call: Callable[[Any], Any], encode: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    async def handle(task: Any, /) -> Any:
        result = await call(task)
        return result if encode is None else encode(result)

    return handle
