"""Redis URIs: every form that asynq reads, with the same meaning, and some more.

========================================================  ============================================================
``redis://[user:password@]host[:port][/db]``              TCP; ``rediss://`` the same over TLS
``redis-socket://[:password@]/path[?db=n]``               Unix socket; ``unix://`` is the same
``redis-sentinel://[:pw@]h1[:port],h2[/db]?master=name``  Sentinel; ``pw`` is the sentinels' password, as in asynq, and
                                                          ``&username=…&password=…`` are for the server they name;
                                                          ``rediss-sentinel://`` talks TLS to it and to the sentinels
``redis-cluster://[user:password@]h1[:port],h2``          Cluster; ``rediss-cluster://`` the same over TLS
``embedded://`` and ``embedded:///data/dir``              a private server, without and with persistence
========================================================  ============================================================

TLS takes ``?ssl_ca_certs=file``, ``ssl_certfile``, ``ssl_keyfile`` and ``ssl_password`` (of that key),
``ssl_server_name=name`` for a certificate of another name than the host, ``ssl_min_version=TLSv1.3``, and
``ssl_cert_reqs=none`` to accept any certificate. ``?credentials=`` names, in place of a password, a function
(``module:function``) or a file that gives it. ``?read_timeout=`` is how long Redis may be silent in a call, in seconds.
Other parameters are ignored, as in asynq.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

DEFAULT_URL = "redis://127.0.0.1:6379/0"


_REDIS_PORT = 6379
_SENTINEL_PORT = 26379
_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?"
)
_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^:\[\]]*))(?::(?P<port>[0-9]*))?")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_FUNCTION = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_LONGEST_READ_TIMEOUT_S = 15.0
"""Half of a lease. A server that has not got the message of a task by then takes the task for lost, and asks again."""
_TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class ConnectionKind(StrEnum):
    """How a server is found."""

    TCP = "tcp"
    UNIX = "unix"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"
    EMBEDDED = "embedded"


class Address(NamedTuple):
    """A host and a port; an IPv6 host has no brackets."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """The PEM files of a TLS connection and its settings; the system's authorities are trusted, too.

    ``ssl_password`` is the password of an encrypted key. The server's certificate must have ``ssl_server_name``, by
    default the host's. With ``ssl_cert_reqs`` "none" it is not checked: anybody could pose as that server.
    """

    ssl_ca_certs: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str = field(default="", repr=False)
    ssl_cert_reqs: str = "required"
    ssl_min_version: str = ""
    ssl_server_name: str = ""


@dataclass(frozen=True, slots=True)
class ConnectionSpec:
    """The Redis to connect to, and the user; empty strings mean "none".

    ``addresses`` are those of the server, of the sentinels, or of some cluster nodes. ``path`` is the Unix socket, or
    the data directory of an embedded server. A ``db`` below 0 means 0, as in asynq. ``credentials`` is the name of a
    function, or a path with a slash. ``tls`` is ``None`` for a plain connection.
    """

    kind: ConnectionKind
    addresses: tuple[Address, ...] = ()
    path: str = ""
    db: int = 0
    username: str = ""
    password: str = field(default="", repr=False)
    credentials: str = ""
    master_name: str = ""
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    tls: TLSFiles | None = None
    read_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Parts:
    scheme: str
    username: str
    password: str
    hosts: str
    path: str
    query: Mapping[str, str]


class _FlawError(Exception):
    """Raised for a fault in a URI; ``parse_redis_uri`` adds the URI with its password masked."""


def url_variable(environment: Mapping[str, str]) -> str:
    """Return the variable that holds the URL: ``FASTQ_REDIS_URL``, or ``FASTQ_REDIS`` if only that is set.

    ``ValueError`` if both are set and name different servers.
    """
    url, short = environment.get("FASTQ_REDIS_URL"), environment.get("FASTQ_REDIS")
    if url and short and url != short:
        raise ValueError("$FASTQ_REDIS_URL and $FASTQ_REDIS name different servers; unset one of them")
    return "FASTQ_REDIS_URL" if url or not short else "FASTQ_REDIS"


def default_url() -> str:
    """Return the URL in ``$FASTQ_REDIS_URL`` or ``$FASTQ_REDIS``, or ``redis://127.0.0.1:6379/0`` if neither is set."""
    return os.environ.get(url_variable(os.environ)) or DEFAULT_URL


def parse_redis_uri(uri: str) -> ConnectionSpec:
    """Parse a Redis URI; a ``ValueError`` shows it with its password masked and says how to fix it."""
    try:
        parts = _split(uri)
        parse = _PARSERS.get(parts.scheme)
        if parse is None:
            raise _FlawError(f"scheme {parts.scheme!r} is none of {', '.join(_PARSERS)}")
        spec = _with_credentials(parse(parts), parts.query.get("credentials", ""))
        return replace(spec, read_timeout_s=_read_timeout_s(parts))
    except _FlawError as flaw:
        raise ValueError(f"bad Redis URI {mask_password(uri)!r}: {flaw}") from None


def mask_password(uri: str) -> str:
    """Return ``uri`` for a log: with ``***`` in place of a password, or of a part that may be meant as one."""
    uri = re.sub(r"([?&](?:ssl_)?password=)[^&#]*", r"\1***", uri)
    scheme, separator, rest = uri.partition("://") if "://" in uri else ("", "", uri)
    # Up to the last "@", since an unencoded one may be part of the password.
    userinfo, at, hosts = rest.rpartition("@")
    username, colon, _ = userinfo.partition(":")
    if at:
        return f"{scheme}{separator}{username}{colon}{'***' if colon else ''}@{hosts}"
    # A port that is not a number may be a password whose "@host" was forgotten.
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if authority.count(":") == 1 and any(_ADDRESS.fullmatch(host) is None for host in authority.split(",")):
        masked = f"{authority.partition(':')[0]}:***"
        return f"{scheme}{separator}{masked}{rest[len(authority) :]}"
    return uri


def _split(uri: str) -> _Parts:
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in uri):
        raise _FlawError("it contains a control character")
    match = _URI.fullmatch(uri)
    if match is None:
        raise _FlawError(f"it must begin with a scheme, as in redis://{uri if _is_host(uri) else 'host:port'}")
    if "@" in (match["fragment"] or ""):
        raise _FlawError("write a '#' in the user name or password as %23")
    userinfo, _, hosts = match["authority"].rpartition("@")
    username, _, password = userinfo.partition(":")
    if " " in hosts:
        raise _FlawError("the host or port contains a space")
    return _Parts(
        scheme=match["scheme"].lower(),
        username=_decoded(username, "user name"),
        password=_decoded(password, "password"),
        hosts=hosts,
        path=_decoded(match["path"], "path"),
        query=_query(match["query"] or ""),
    )


def _is_host(text: str) -> bool:
    return bool(text) and "@" not in text and _ADDRESS.fullmatch(text.partition("/")[0]) is not None


def _decoded(text: str, name: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise _FlawError(f"the {name} contains a '%' that encodes nothing; write it as %25")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _FlawError(f"the {name} is not UTF-8 once decoded") from None


def _query(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise _FlawError("a parameter is not UTF-8 once decoded") from None
    return dict(reversed(pairs))  # the first value of a name counts, as in Go


def _address(text: str, default_port: int) -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        if text.count(":") > 1:
            raise _FlawError("write an IPv6 address in brackets: [::1]:6379")
        raise _FlawError("the port must be a number; write a '#', '/', '?' or '@' in the password percent-encoded")
    port = int(match["port"] or default_port)
    if not 0 < port < 65536:
        raise _FlawError(f"the port must be from 1 to 65535, not {port}")
    return Address(unquote(match["ipv6"]) if match["ipv6"] else match["host"] or "localhost", port)


def _addresses(hosts: str, default_port: int) -> tuple[Address, ...]:
    found = tuple(_address(host, default_port) for host in hosts.split(",") if host)
    if not found:
        raise _FlawError("it names no host")
    return found


def _number(text: str, where: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise _FlawError(f"{where} must be the number of a database, not {text!r}")
    return int(text)


def _db_of_path(parts: _Parts) -> int:
    if "@" in parts.path:  # it may be the rest of a password, which must not be shown
        raise _FlawError("write a '/' in the user name or password as %2F")
    segment = parts.path.strip("/").partition("/")[0]
    return _number(segment, "the first segment of the path") if segment else 0


def _db_of_query(parts: _Parts) -> int:
    text = parts.query.get("db", "")
    return _number(text, "the parameter db") if text else 0


def _tls(parts: _Parts) -> TLSFiles | None:
    given = {name: value for name, value in parts.query.items() if name.startswith("ssl_")}
    if not parts.scheme.startswith("rediss"):
        if given:
            raise _FlawError(f"{', '.join(given)} needs TLS; write rediss in place of redis")
        return None
    names = {field.name for field in fields(TLSFiles)}
    if unknown := given.keys() - names:
        raise _FlawError(f"{', '.join(sorted(unknown))} is none of {', '.join(sorted(names))}")
    if (reqs := given.get("ssl_cert_reqs", "none")) not in ("none", "required"):
        raise _FlawError(f"ssl_cert_reqs must be none or required, not {reqs!r}")
    if (version := given.get("ssl_min_version", _TLS_VERSIONS[0])) not in _TLS_VERSIONS:
        raise _FlawError(f"ssl_min_version must be {' or '.join(_TLS_VERSIONS)}, not {version!r}")
    if "ssl_keyfile" in given and "ssl_certfile" not in given:
        raise _FlawError("ssl_keyfile needs ssl_certfile")
    return TLSFiles(**given)


def _with_credentials(spec: ConnectionSpec, name: str) -> ConnectionSpec:
    if not name:
        return spec
    if "/" not in name and not _FUNCTION.fullmatch(name):
        raise _FlawError(f"credentials must be module:function or the path of a file, not {name!r}")
    if spec.password or spec.kind is ConnectionKind.EMBEDDED:
        raise _FlawError("credentials go neither with a password nor with an embedded server")
    return replace(spec, credentials=name)


def _read_timeout_s(parts: _Parts) -> float | None:
    if (text := parts.query.get("read_timeout")) is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_READ_TIMEOUT_S:
        raise _FlawError(f"read_timeout must be more than 0 and at most {_LONGEST_READ_TIMEOUT_S:g} s, not {text!r}")
    return seconds


def _parse_tcp(parts: _Parts) -> ConnectionSpec:
    if "," in parts.hosts:
        raise _FlawError("it names several hosts; write redis-cluster:// or redis-sentinel:// for those")
    return ConnectionSpec(
        ConnectionKind.TCP,
        addresses=(_address(parts.hosts, _REDIS_PORT),),
        db=_db_of_path(parts),
        username=parts.username,
        password=parts.password,
        tls=_tls(parts),
    )


def _parse_unix(parts: _Parts) -> ConnectionSpec:
    if not parts.path:
        raise _FlawError(f"it names no socket, as {parts.scheme}:///run/redis.sock does")
    return ConnectionSpec(
        ConnectionKind.UNIX,
        path=parts.path,
        db=_db_of_query(parts),
        username=parts.username or parts.query.get("username", ""),
        password=parts.password or parts.query.get("password", ""),
    )


def _parse_sentinel(parts: _Parts) -> ConnectionSpec:
    if not parts.query.get("master"):
        raise _FlawError("it does not name the master; add ?master=NAME")
    return ConnectionSpec(
        ConnectionKind.SENTINEL,
        addresses=_addresses(parts.hosts, _SENTINEL_PORT),
        db=_db_of_path(parts),
        username=parts.query.get("username", ""),
        password=parts.query.get("password", ""),
        master_name=parts.query["master"],
        sentinel_username=parts.username,
        sentinel_password=parts.password,
        tls=_tls(parts),
    )


def _parse_cluster(parts: _Parts) -> ConnectionSpec:
    if db := _db_of_path(parts):
        raise _FlawError(f"a cluster has database 0 only, not {db}")
    return ConnectionSpec(
        ConnectionKind.CLUSTER,
        addresses=_addresses(parts.hosts, _REDIS_PORT),
        username=parts.username,
        password=parts.password,
        tls=_tls(parts),
    )


def _parse_embedded(parts: _Parts) -> ConnectionSpec:
    if parts.hosts or parts.username or parts.password:
        raise _FlawError("a data directory is an absolute path after three slashes: embedded:///var/lib/fastq")
    if parts.path and not parts.path.strip("/"):
        raise _FlawError("it names the root directory; write embedded:// for a server without a data directory")
    return ConnectionSpec(ConnectionKind.EMBEDDED, path=parts.path, db=_db_of_query(parts))


_PARSERS: Mapping[str, Callable[[_Parts], ConnectionSpec]] = {
    "redis": _parse_tcp,
    "rediss": _parse_tcp,
    "redis-socket": _parse_unix,
    "unix": _parse_unix,
    "redis-sentinel": _parse_sentinel,
    "rediss-sentinel": _parse_sentinel,
    "redis-cluster": _parse_cluster,
    "rediss-cluster": _parse_cluster,
    "embedded": _parse_embedded,
}
