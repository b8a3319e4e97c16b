"""The Redis that a command talks to: options, environment and configuration file, combined into one URL.

Options come first, then the file of ``--config``, then ``$FASTQ_<NAME>`` (the URL: ``$FASTQ_REDIS_URL`` or
``$FASTQ_REDIS``), then the user's own file. If a source names a server, later sources are ignored, because their
password may be meant for another server. Only options override the parts of a URL.
"""

import difflib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import click

from fastq.cli.numbers import IntegerRange
from fastq.redis_url import DEFAULT_URL, parse_redis_uri, url_variable
from fastq.server.base.settings import EXTRA_KEYS, SETTINGS, parse_kind, read_table

GIVEN: Final = "fastq.given"
CLUSTER_ADDRS: Final = ",".join(f"127.0.0.1:{port}" for port in range(7000, 7006))
CONNECTION_NAMES: Final = (
    "redis",
    "db",
    "username",
    "password",
    "redis_credentials",
    "cluster",
    "cluster_addrs",
    "tls",
    "tls_server",
    "insecure",
)
RUNNER_NAMES: Final = ("redis", "redis_credentials")
"""The Redis settings that ``fastq-worker`` and similar commands define as their own options and file keys."""
_FLAGS: Final = frozenset({"cluster", "tls", "insecure"})
_WITH_USER: Final = frozenset({"redis", "rediss", "redis-cluster", "rediss-cluster"})
_SECURE: Final = {"redis": "rediss", "redis-cluster": "rediss-cluster", "redis-sentinel": "rediss-sentinel"}
_SENTINELS: Final = ("redis-sentinel", "rediss-sentinel")


def connection_options(*, hidden: bool) -> list[click.Parameter]:
    """Return the Redis options; each command accepts them, but only the top-level help lists them."""

    def option(*words: str, **more: Any) -> click.Option:
        return click.Option([*words], expose_value=False, callback=_note, hidden=hidden, **more)

    return [
        option(
            "--redis", "--uri", "-u", "redis", metavar="URL",
            help="the Redis server: a URL or host:port  [default: $FASTQ_REDIS_URL, else 127.0.0.1:6379]",
        ),
        option("--db", "-n", type=IntegerRange(0), metavar="N", help="the database number"),
        option("--username", "-U", metavar="NAME", help="the Redis user"),
        option("--password", "-p", metavar="TEXT", help="the password; $FASTQ_PASSWORD or the file is safer"),
        option(
            "--redis-credentials", metavar="MODULE:FUNCTION|FILE",
            help="in place of a password: a function that returns it, alone or after the user's name, or a file",
        ),
        option("--cluster", is_flag=True, default=None, help="Redis is a cluster"),
        option(
            "--cluster-addrs", "--cluster_addrs", metavar="HOST:PORT,...", help="some nodes of the cluster"
        ),
        option("--tls", is_flag=True, default=None, help="use TLS"),
        option("--tls-server", "--tls_server", metavar="NAME", help="use TLS; the certificate must have this name"),
        option("--insecure", is_flag=True, default=None, help="accept any certificate"),
        option(
            "--config", metavar="FILE",
            help="a TOML file with these options  [default: $FASTQ_CONFIG, else ~/.config/fastq/config.toml]",
        ),
    ]  # fmt: skip


def _note(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Store a given option; an option after the command overrides the same option before the command."""
    if parameter.name is not None:
        note_given(context, parameter.name, value)


def note_given(context: click.Context, name: str, value: Any) -> None:
    """Set one of the Redis options, unless the value is None."""
    if value is not None:
        context.meta.setdefault(GIVEN, {})[name] = value


def server_is_named(context: click.Context, environment: Mapping[str, str]) -> bool:
    """Return whether an option or a ``$FASTQ_…`` variable names a server."""
    layers = (context.meta.get(GIVEN, {}), _from_environment(environment))
    return any(layer.get(name) for layer in layers for name in ("redis", "cluster_addrs", "config"))


def redis_url(context: click.Context) -> str:
    """Return the URL of Redis; ``UsageError`` names a bad option, variable or setting of the file."""
    flags: dict[str, Any] = dict(context.meta.get(GIVEN, {}))
    named = flags.pop("config", None)
    try:
        if "redis" in flags and "cluster_addrs" in flags:
            raise ValueError("--redis and --cluster-addrs both name a server; one of them is enough")
        layers = [flags, *_layers(named)]
        parts = _merged(layers)
        return _checked(_composed(parts, flags))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _layers(named: str | None) -> Iterator[dict[str, Any]]:
    """Read the other sources in order of precedence; a file given with ``--config`` must exist."""
    if named is not None:
        yield _from_file(Path(named))
    yield _from_environment(os.environ)
    if named is None and (path := config_path(None)) is not None:
        yield _from_file(path)


def _merged(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge layers, of which earlier ones take precedence; stop after the first layer that names a server."""
    parts: dict[str, Any] = {}
    for layer in layers:
        parts = {**layer, **parts}
        if "redis" in layer or layer.get("cluster_addrs"):
            break
    return parts


def _checked(url: str) -> str:
    """Check a URL; if it names a function for the credentials, make modules in the current directory importable."""
    if parse_redis_uri(url).credentials:
        search_here()
    return url


def search_here() -> None:
    """Make modules in the current directory importable, as ``python -m`` does."""
    if not any(entry in ("", os.getcwd()) for entry in sys.path):
        sys.path.insert(0, os.getcwd())


def given_defaults(context: click.Context) -> dict[str, Any]:
    """Return the Redis options and the file that were given before a command, as defaults for its own options."""
    given = dict(context.meta.get(GIVEN, {}))
    file = given.pop("config", None)
    return ({"redis": redis_url(context)} if given else {}) | ({"config": file} if file else {})


def runner_url(options: Mapping[str, Any], file: Mapping[str, Any]) -> str | None:
    """Return the URL of a command that runs an app: from its options, the environment, or its file; None if unset."""
    flags, said = (
        {
            name: _value(name, value, f"{name} in {where}")
            for name in RUNNER_NAMES
            if (value := source.get(name)) is not None
        }
        for source, where in ((options, "the options"), (file, "the file"))
    )
    parts = _merged((flags, _from_environment(os.environ), said))
    return _checked(_composed(parts, flags)) if parts else None


def config_path(given: str | None) -> Path | None:
    """Return the file to read: the given one, else the user's own file if it exists."""
    if named := given or os.environ.get("FASTQ_CONFIG"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    path = (Path(home) if home else Path.home() / ".config") / "fastq" / "config.toml"
    return path if path.is_file() else None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in CONNECTION_NAMES:
        variable = url_variable(environment) if name == "redis" else f"FASTQ_{name.upper()}"
        if text := environment.get(variable):
            found[name] = _value(name, text, variable)
    return found


def _from_file(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in read_table(path).items():
        name = key.replace("-", "_")
        name = "redis" if name == "uri" else name
        if name in CONNECTION_NAMES:
            found[name] = _value(name, value, f"{key} in {path}")
        elif name not in SETTINGS and name not in EXTRA_KEYS:  # the file may also have a worker's settings
            close = difflib.get_close_matches(name, CONNECTION_NAMES, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"settings are {', '.join(CONNECTION_NAMES)}"
            raise ValueError(f"{path}: unknown setting {key!r}; {hint}")
    return found


def _value(name: str, value: object, where: str) -> Any:
    try:
        if name in _FLAGS:
            return value if isinstance(value, bool) else parse_kind("flag", _text(value))
        if name == "db":
            is_number = isinstance(value, int) and not isinstance(value, bool)
            return value if is_number else parse_kind("count", _text(value))
        if name == "cluster_addrs" and isinstance(value, list):
            return ",".join(map(_text, value))
        return _text(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def _composed(parts: Mapping[str, Any], flags: Mapping[str, Any]) -> str:
    url = _base(parts)
    scheme, _, rest = url.partition("://")
    own = _own_parts(scheme, rest) - flags.keys() if "redis" in parts else set()
    parts = {name: value for name, value in parts.items() if name not in own}
    if any(parts.get(name) for name in ("tls", "tls_server", "insecure")) and not scheme.startswith("rediss"):
        if scheme not in _SECURE:
            raise ValueError(f"--tls goes with {', '.join(f'{each}://' for each in _SECURE)}, not with {scheme}://")
        scheme = _SECURE[scheme]
    authority, path, query = _split(rest)
    if scheme in _WITH_USER:
        authority = _with_user(authority, parts)
        path = f"/{parts['db']}" if "db" in parts else path
    else:
        given: dict[str, Any] = {name: parts[name] for name in ("username", "password") if name in parts}
        if "db" in parts and scheme in _SENTINELS:
            path = f"/{parts['db']}"
        elif "db" in parts:
            given["db"] = parts["db"]
        for name, value in given.items():
            query = _with_parameter(query, name, value)
    for name, value in (
        ("credentials", parts.get("redis_credentials")),
        ("ssl_server_name", parts.get("tls_server")),
        ("ssl_cert_reqs", "none" if parts.get("insecure") else None),
    ):
        if value:
            query = _with_parameter(query, name, value)
    return f"{scheme}://{authority}{path}{query}"


def _own_parts(scheme: str, rest: str) -> set[str]:
    """Return which of database, user, password and credentials a URL contains."""
    authority, path, query = _split(rest)
    username, _, password = authority.rpartition("@")[0].partition(":")
    said = dict(parse_qsl(query[1:]))
    own = {"redis_credentials"} if said.get("credentials") else set()
    if scheme in _WITH_USER:
        said = {"db": path.strip("/")}
    elif scheme in _SENTINELS:
        said["db"] = path.strip("/")
    if scheme not in _SENTINELS:  # in URLs of sentinels, user and password are for the sentinels
        said = {"username": username, "password": password, **{name: text for name, text in said.items() if text}}
    return own | {name for name in ("db", "username", "password") if said.get(name)}


def _base(parts: Mapping[str, Any]) -> str:
    given: str | None = parts.get("redis")
    if given is not None and not given.strip():  # for example from an unset shell variable
        raise ValueError(f"--redis, or redis in the file, is empty: {given!r}; leave it out for {DEFAULT_URL}")
    if given is not None and "://" in given:
        if parts.get("cluster") and "cluster" not in given.partition("://")[0]:
            raise ValueError(
                "--cluster and a URL of another kind contradict each other; write redis-cluster://host:port"
            )
        return given
    if parts.get("cluster") or parts.get("cluster_addrs"):
        return f"redis-cluster://{parts.get('cluster_addrs') or given or CLUSTER_ADDRS}"
    return DEFAULT_URL if given is None else f"redis://{given}"


def _split(rest: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"([^/?#]*)([^?#]*)(.*)", rest, re.DOTALL)
    assert match is not None  # every part of the pattern may be empty
    return match[1], match[2], match[3]


def _with_user(authority: str, parts: Mapping[str, Any]) -> str:
    userinfo, at, hosts = authority.rpartition("@")
    username, _, password = userinfo.partition(":")
    username = quote(parts["username"], safe="") if "username" in parts else username
    password = quote(parts["password"], safe="") if "password" in parts else password
    if not at and not username and not password:
        return authority
    return f"{username}{':' if password else ''}{password}@{hosts}"


def _with_parameter(query: str, name: str, value: object) -> str:
    """Put a parameter first in the query, since the first of several parameters with the same name counts."""
    return f"?{name}={quote(str(value), safe='')}{'&' if query[1:] else ''}{query[1:]}"
