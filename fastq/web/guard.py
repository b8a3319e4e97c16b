"""What every request must pass, and the headers that every reply gets."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.requests import Request

__all__ = ["SAFE", "SECURITY_HEADERS", "is_embedded", "is_known_host", "is_same_origin"]

SAFE: Final = frozenset({"GET", "HEAD"})

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # Not no-referrer: under that, browsers send "Origin: null" with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.%]+)\]|([a-z0-9._-]+))(?::\d{1,5})?", re.IGNORECASE | re.ASCII)


def is_known_host(host: str, allowed: Sequence[str]) -> bool:
    """Return whether a ``Host`` header names us.

    Addresses and localhost always do: an attack by DNS rebinding needs a name of its own. Other names must be listed;
    ``*.example.com`` stands for all names below it, ``*`` for any.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = (match[1] or match[2]).lower()
    if name == "localhost" or _is_address(name):
        return True
    return any(
        each == "*" or name == each.lower() or (each.startswith("*.") and name.endswith(each[1:].lower()))
        for each in allowed
    )


def is_same_origin(request: Request) -> bool:
    """Return whether an unsafe request was not sent by a page of another origin.

    A browser tells by ``Sec-Fetch-Site``, or by ``Origin`` where the page came over plain HTTP. A request with neither
    was not sent by a browser.
    """
    if site := request.headers.get("sec-fetch-site"):
        return site == "same-origin"
    origin = request.headers.get("origin")
    if origin is None:
        return True
    host = request.headers.get("host", "").lower()
    return origin.lower() in (f"http://{host}", f"https://{host}")


def is_embedded(request: Request) -> bool:
    """Return whether a page of another origin asks for something by itself: an image, a frame, a stream, a fetch.

    It could not read the reply, but the reply has its cost. Links from other sites are followed.
    """
    if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    return request.headers.get("sec-fetch-mode") != "navigate" or request.headers.get("sec-fetch-dest") != "document"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
