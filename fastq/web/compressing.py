"""Compresses replies with gzip for browsers that accept it: pages as a whole, streams event by event."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

LEAST_BYTES: Final = 1_000
MOST_AT_ONCE: Final = 500_000
"""A larger reply is compressed in a thread."""
LEVEL: Final = 4
_TEXT: Final = ("text/html", "application/json")
_WINDOW: Final = 16 + 15
_MEMORY: Final = 6
"""zlib's memory level. With this level and ``_WINDOW``, a stream takes 160 kB of memory."""


def takes_gzip(request: Request) -> bool:
    """Return whether a reply to a request may be compressed."""
    codings = [coding.strip() for coding in request.headers.get("accept-encoding", "").lower().split(",")]
    return any(coding.partition(";")[0] == "gzip" and not coding.endswith(("q=0", "q=0.0")) for coding in codings)


async def compress(request: Request, response: Response) -> None:
    """Compress a reply if it is text, not compressed yet, and large enough."""
    body = getattr(response, "body", b"")  # a stream has no body
    media = response.headers.get("content-type", "").partition(";")[0]
    if len(body) < LEAST_BYTES or media not in _TEXT or "content-encoding" in response.headers:
        return
    response.headers["vary"] = "accept-encoding"
    if not takes_gzip(request):
        return
    if len(body) > MOST_AT_ONCE:
        packed = await asyncio.to_thread(gzip.compress, body, LEVEL, mtime=0)
    else:
        packed = gzip.compress(body, LEVEL, mtime=0)
    response.body = packed
    response.headers["content-length"] = str(len(packed))
    response.headers["content-encoding"] = "gzip"


async def flowing(texts: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Compress a stream such that a browser can read each text as soon as it arrives."""
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    async for text in texts:
        yield packer.compress(text.encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()
