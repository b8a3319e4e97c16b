"""A process of asynqmon's, the web monitor of asynq's authors, and its REST API."""

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from tests.waiting import PATIENCE_S

LIMIT_S = PATIENCE_S


class Asynqmon:
    """Run it on one Redis."""

    def __init__(self, binary: Path, redis_socket: Path, *more: str) -> None:
        self._process = subprocess.Popen(
            [binary, "--socket", redis_socket, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=LIMIT_S)

    def get(self, *path: str, **query: int) -> Any:
        """Return what it answers; the parts of the path are what they are, however spelled."""
        _, body = self._ask("GET", path, "&".join(f"{name}={value}" for name, value in query.items()))
        return json.loads(body)

    def do(self, method: str, *path: str, body: Any = None) -> Any:
        """Act, and return what it answers: None when that is nothing."""
        status, answer = self._ask(method, path, body=body)
        assert (status == 204) == (not answer), (status, answer)
        return json.loads(answer) if answer else None

    def refusal(self, method: str, *path: str) -> tuple[int, str]:
        """See it refuse, and return why."""
        try:
            self._ask(method, path)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode().strip()
        raise AssertionError(f"{method} {path} was not refused")

    def page(self) -> str:
        """Return the page that a browser is given."""
        with urllib.request.urlopen(f"http://{self.address}/", timeout=LIMIT_S) as answer:
            text: str = answer.read().decode()
            return text

    def _ask(self, method: str, path: tuple[str, ...], query: str = "", body: Any = None) -> tuple[int, bytes]:
        where = "/".join(quote(part, safe=":") for part in path)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}/api/{where}?{query}", data, method=method)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.status, answer.read()
