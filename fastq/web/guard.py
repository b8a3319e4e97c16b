"""What every request must pass, and the headers that every reply gets."""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

__all__ = ["SAFE", "SECURITY_HEADERS", "is_known_host", "is_same_origin"]

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


def is_known_host(host: str, allowed: Sequence[str]) -> bool:
    """Return whether a ``Host`` header names us.

    Addresses and localhost always do: an attack by DNS rebinding needs a name of its own. Other names must be listed;
    ``*.example.com`` stands for all names below it, ``*`` for any.
    """
    name = _host_name(host)
    if not name:
        return False
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


def _host_name(host: str) -> str | None:
    if set(host) & set("/?#@\\"):
        return None
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
