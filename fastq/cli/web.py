"""``fastq web``: the shell command. Only this command imports Starlette and uvicorn."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from fastq.cli.apps import typed_app
from fastq.cli.commands import Verb
from fastq.cli.connection import note_given, redis_url, server_is_named
from fastq.cli.numbers import IntegerRange
from fastq.cli.streams import say_failure
from fastq.common.extras import import_extra
from fastq.errors import FastqError

SERVER: Final = "fastq.web.serve"
LEAST_PASSWORD: Final = 8
PACKAGES: Final = ("starlette", "uvicorn", "jinja2")

_OF_ASYNQMON: Final[Mapping[str, tuple[str, bool]]] = {
    "redis-url": ("redis", False),
    "redis-addr": ("redis", False),
    "redis-db": ("db", False),
    "redis-password": ("password", False),
    "redis-tls": ("tls_server", False),
    "redis-insecure-tls": ("insecure", True),
    "redis-cluster-nodes": ("cluster_addrs", False),
}
"""asynqmon's Redis options: for each, fastq's name of the option, and whether it is a flag without a value."""


def _aliases() -> list[click.Parameter]:
    """Return asynqmon's options for Redis, hidden from the help."""

    def option(word: str, name: str, is_flag: bool) -> click.Option:
        def note(context: click.Context, parameter: click.Parameter, value: Any) -> None:
            note_given(context, name, value)

        more: dict[str, Any] = {"type": IntegerRange(0)} if name == "db" else {}
        return click.Option(
            [f"--{word}"], is_flag=is_flag, default=None, expose_value=False, hidden=True, callback=note, **more
        )

    return [option(word, *what) for word, what in _OF_ASYNQMON.items()]


def _note_asynqmons_variables(context: click.Context, environment: Mapping[str, str]) -> None:
    """Use ``$REDIS_URL`` and the like, unless an option or a variable of fastq names a server."""
    if server_is_named(context, environment):
        return
    for word, (name, is_flag) in _OF_ASYNQMON.items():
        text = environment.get(word.upper().replace("-", "_"))
        if text and not (name == "redis" and word == "redis-addr" and environment.get("REDIS_URL")):
            note_given(context, name, text.lower() in ("1", "t", "true") if is_flag else _number(name, text))


def _number(name: str, text: str) -> Any:
    if name != "db":
        return text
    if not text.isdecimal():
        raise click.UsageError(f"$REDIS_DB: {text!r} is not a number")
    return int(text)


def _own(name: str, **more: Any) -> Callable[[Any], Any]:
    variable = name.upper().replace("-", "_")
    return click.option(f"--{name}", envvar=f"FASTQ_WEB_{variable}", **more)


def _shared(name: str, **more: Any) -> Callable[[Any], Any]:
    """Make an option that asynqmon also has; asynqmon's variable works, too."""
    variable = name.upper().replace("-", "_")
    # Kubernetes sets FASTQ_WEB_PORT for a service named fastq-web, so the variable needs another name.
    own = "FASTQ_WEB_HTTP_PORT" if name == "port" else f"FASTQ_WEB_{variable}"
    return click.option(f"--{name}", envvar=[own, variable], show_default=True, **more)


@click.command(
    "web",
    cls=Verb,
    examples=[
        "web",
        "web --host 0.0.0.0 --auth basic:users.txt --allow-host tasks.example.com",
        "web --new-user ann:operator > users.txt",
        "web --queue 'mail*' --redact password --redact token",
    ],
)
@_own("host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="the address to listen on")
@_shared("port", type=IntegerRange(0, 65535), default=8080, help="the port to listen on")
@_own("root-path", default="", metavar="PATH", help="the path below which a proxy shows the pages")
@_own("auth", metavar="SPEC", help="basic:FILE, tokens:FILE, header:NAME:ROLE or call:MODULE:ATTR")
@click.option("--no-auth", is_flag=True, help="let everyone who reaches the address do everything")
@_own("trusted-proxy", multiple=True, metavar="CIDR", help="an address whose header names the user")
@_own("allow-host", multiple=True, metavar="NAME", help="a name of this server; addresses and localhost need none")
@_shared("read-only", is_flag=True, help="forbid all changes")
@_own("forbid", multiple=True, metavar="ACTION", help="forbid one action, such as queue.delete")
@_own("queue", multiple=True, metavar="GLOB", help="show only queues with such names")
@_own("hide-payloads", is_flag=True, help="show no payloads and results")
@_own("redact", multiple=True, metavar="KEY", help="hide the values of this member of JSON payloads")
@_shared("max-payload-length", type=IntegerRange(0), default=200, help="characters of payloads in /api")
@_shared("max-result-length", type=IntegerRange(0), default=200, help="characters of results in /api")
@_shared("prometheus-addr", default="", metavar="URL", help="the Prometheus whose series are shown as charts")
@_shared("enable-metrics-exporter", is_flag=True, help="serve the metrics of all queues at /metrics")
@_own("also", multiple=True, metavar="NAME=URL", help="a further Redis, shown below /@NAME")
@_own("link", multiple=True, metavar="NAME=URL", help="a link on the page of each task, such as Logs=https://…/{id}")
@_own("app", metavar="MODULE:ATTR", help="the App whose typed tasks the form that enqueues has fields for")
@_own("log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="the form of the log")
@click.option("--new-user", metavar="NAME:ROLE", help="ask for a password, print the line for basic:FILE, and end")
@click.option("--new-token", metavar="NAME:ROLE", help="print the line for tokens:FILE, and the token to stderr")
@click.pass_context
def web(context: click.Context, /, **given: Any) -> int:
    """Serve the web UI, and asynqmon's REST API below /api.

    Takes asynqmon's flags and variables, too. Roles: viewers look, operators also pause, enqueue, move and cancel,
    admins also delete, stop servers and repair. Needs fastq-worker[web].
    """
    server = import_extra(SERVER, PACKAGES, "the web UI needs {}; install it: pip install 'fastq-worker[web]'")
    try:
        if given["new_user"] or given["new_token"]:
            return _print_line(server, given["new_user"], given["new_token"])
        _note_asynqmons_variables(context, os.environ)
        app = _app(server, redis_url(context), given)
        trusted = server.networks_of(given["trusted_proxy"])
        options = server.ServeOptions(given["host"], given["port"], given["log_format"], click.echo, trusted)
        server.serve(app, options)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise FastqError(f"cannot listen on {given['host']}:{given['port']}: {error.strerror or error}") from None
    return 0


def _app(server: Any, url: str, given: Mapping[str, Any]) -> Any:
    if given["auth"] and given["no_auth"]:
        raise ValueError("--auth and --no-auth contradict each other")
    if not given["auth"] and not server.is_loopback(given["host"]):
        if not given["no_auth"]:
            raise ValueError(
                f"--host {given['host']} is reachable from other machines, and needs --auth; "
                "--no-auth lets everyone who reaches it delete tasks"
            )
        say_failure(f"warning: everyone who reaches {given['host']} may do everything")
    return server.FastqWeb(
        redis=url,
        root_path=given["root_path"],
        auth=server.auth_of(given["auth"], given["trusted_proxy"]) if given["auth"] else None,
        read_only=given["read_only"],
        forbidden=given["forbid"],
        allowed_hosts=given["allow_host"],
        queues=given["queue"] or ("*",),
        hide_payloads=given["hide_payloads"],
        redact=given["redact"],
        payload_formatter=server.shortened(given["max_payload_length"]),
        result_formatter=server.shortened(given["max_result_length"]),
        prometheus=given["prometheus_addr"],
        metrics=given["enable_metrics_exporter"],
        links=dict(_named("link", text, "Logs=https://logs.example.com/{id}") for text in given["link"]),
        app=typed_app(given["app"]) if given["app"] else None,
        also=dict(_named("also", text, "staging=redis://staging:6379/0") for text in given["also"]),
    )


def _named(option: str, text: str, example: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals:
        raise ValueError(f"--{option} {text!r}: write NAME=URL, such as {example}")
    return name, url


def _print_line(server: Any, user: str | None, token: str | None) -> int:
    name, _, role = (user or token or "").partition(":")
    if not name or not role:
        raise ValueError(f"{user or token!r}: write NAME:ROLE, such as ann:operator, or ann:operator@mail*")
    known = server.User.of(name, role)
    if user:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        if len(password) < LEAST_PASSWORD:
            raise ValueError(f"the password has {len(password)} characters; at least {LEAST_PASSWORD} are needed")
        click.echo(server.new_user_line(known, password))
    else:
        secret, line = server.new_token(known)
        click.echo(line)
        click.echo(f"The token, which is not shown again: {secret}", err=True)
    return 0


web.params += _aliases()
