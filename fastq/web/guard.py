"""The checks that every request must pass, and the headers that every reply gets."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final

from starlette.requests import Request

SAFE: Final = frozenset({"GET", "HEAD"})

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # With no-referrer, browsers would send "Origin: null" even with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_BROWSERS: Final = "Mozilla/"
"""The start of every browser's ``User-Agent``; a page can change it only after a preflight request, which is refused.
"""
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.%]+)\]|([a-z0-9._-]+))(?::\d{1,5})?", re.IGNORECASE | re.ASCII)


def is_known_host(host: str, allowed: Sequence[str]) -> bool:
    """Return whether a ``Host`` header names this server. IP addresses and localhost are always accepted, since an
    attack by DNS rebinding needs a host name of its own. Other names must be in ``allowed``; ``*.example.com`` allows
    all names below example.com, ``*`` allows any name.
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
    """Return False for an unsafe request, such as a POST, that a page of another origin sent.

    Browsers send ``Sec-Fetch-Site``, or over plain HTTP ``Origin``. A request without either header was not sent by a
    browser. A request that has one of the headers twice is refused as an attack.
    """
    sites, origins = request.headers.getlist("sec-fetch-site"), request.headers.getlist("origin")
    if len(sites) > 1 or len(origins) > 1:
        return False
    if sites and sites[0]:
        return sites[0] == "same-origin"
    return not origins or is_own(origins[0], request)


def is_own(origin: str, request: Request) -> bool:
    """Return whether an origin is that of this server, under the host name that the browser uses."""
    host = request.headers.get("host", "").lower()
    return origin.lower() in (f"http://{host}", f"https://{host}")


class Source(Enum):
    """Where a request that only reads comes from."""

    OWN = auto()
    """One of this server's pages, the address bar, a link that somebody clicked, or a program other than a browser."""
    LINK = auto()
    """Possibly a page of another site that opened this address without a click; over plain HTTP also a bookmark."""
    EMBEDDED = auto()
    """A page of another site that loads an image, a frame or a stream, or calls fetch. That page could not read the
    reply, but making the reply would take time.
    """


def source_of(request: Request) -> Source:
    """Return where a request that only reads comes from.

    To host names, browsers send ``Sec-Fetch-Site`` only over TLS. Over plain HTTP, our own pages are recognized by
    ``Referer``, since no other site can send our name there, and a navigation by ``Upgrade-Insecure-Requests``, since
    no script can set it.
    """
    headers = request.headers
    sites, origins = headers.getlist("sec-fetch-site"), headers.getlist("origin")
    if len(sites) > 1 or len(origins) > 1:
        return Source.EMBEDDED
    if sites:
        if sites[0] in ("none", "same-origin"):
            return Source.OWN
        if headers.get("sec-fetch-mode") != "navigate" or headers.get("sec-fetch-dest") != "document":
            return Source.EMBEDDED
        return Source.OWN if headers.get("sec-fetch-user") == "?1" else Source.LINK
    if origins:
        return Source.OWN if is_own(origins[0], request) else Source.EMBEDDED
    referer = headers.get("referer", "")
    if is_own("/".join(referer.split("/", 3)[:3]), request):
        return Source.OWN
    if not referer and not headers.get("user-agent", "").startswith(_BROWSERS):
        return Source.OWN
    return Source.LINK if headers.get("upgrade-insecure-requests") == "1" else Source.EMBEDDED


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
