"""A ``FastqWeb`` behind a real HTTP server on a free port of the loopback interface, and requests to it."""

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import uvicorn
from starlette.types import ASGIApp

from fastq.web.v1 import ROOT, V1
from tests.waiting import PATIENCE_S, wait_until

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "web.schema.json").read_text())


@dataclass(frozen=True)
class Answer:
    """What came back; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, /, **headers: str) -> Answer:
        """Send a request as it is; ``_`` in the name of a header stands for ``-``."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, given)
            reply = connection.getresponse()
            told = {name.lower(): value for name, value in reply.getheaders()}
            answer = Answer(reply.status, told, b"" if method == "HEAD" else reply.read())
            _check(method, path, answer)
            return answer
        finally:
            connection.close()

    def get(self, path: str, /, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)


@cache
def _validator(name: str) -> Any:
    """Return what checks replies."""
    return jsonschema.Draft202012Validator({**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{name}"}]})


def _check(method: str, path: str, answer: Answer) -> None:
    """Hold a reply of ``/api/v1`` against its schema."""
    _, root, rest = path.partition(ROOT)
    for route in V1 if root and answer.headers.get("content-type") == "application/json" else ():
        if route.method == method and route.regex.fullmatch((root + rest).partition("?")[0]):
            name = route.reply if answer.status < 400 else "error"
            if name in SCHEMA["$defs"]:
                _validator(name).validate(answer.json)
            return


@contextmanager
def serving(app: ASGIApp, **settings: Any) -> Iterator[Served]:
    """Serve an app from a thread of this process; ``settings`` are further ones of uvicorn."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            port=0,
            log_level="warning",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            ws="none",
            **settings,
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        yield Served(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
