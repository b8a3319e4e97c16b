"""The parser of redis-py's asyncio connections, which lets go of a connection's streams at its end.

A stream keeps the fault that broke it. The traceback of a fault keeps frames, and through them the task and all callers
with the payloads that they work on. redis-py's own parser keeps the stream until its connection is made anew, which may
be never.
"""

from typing import Any

from redis._parsers import _AsyncHiredisParser
from redis.exceptions import ConnectionError as RedisConnectionError


class Parser(_AsyncHiredisParser):
    """redis-py's parser, without the stream of a connection that has ended."""

    def on_disconnect(self) -> None:
        """Let go of the stream."""
        super().on_disconnect()  # type: ignore[no-untyped-call]
        self._stream = None

    async def read_from_socket(self) -> bool:
        """Read what is there; raise an error if the connection has ended between two reads of a reply."""
        if self._stream is None:
            raise RedisConnectionError("Connection closed by server.")
        return bool(await super().read_from_socket())  # type: ignore[no-untyped-call]


def use_parser(*pools: Any) -> None:
    """Let pools, or cluster nodes, make their connections with this parser; none may be open yet."""
    for pool in pools:
        pool.connection_kwargs["parser_class"] = Parser
