"""Authentication: passwords, bearer tokens, or a header that a trusted proxy sets; no cookies, no sessions.

An authentication is a callable that gets a Starlette ``Request`` and returns a ``User``, or None to refuse. It may be a
coroutine function.
"""

import asyncio
import base64
import hashlib
import hmac
import importlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import random
from typing import Final, TypeAlias

from starlette.requests import Request

from fastq.web.access import Role, User
from fastq.web.addresses import address_of, is_one_of, networks_of

Auth: TypeAlias = Callable[[Request], "User | Awaitable[User | None] | None"]

REALM: Final = 'Basic realm="fastq", charset="UTF-8"'
SCRYPT: Final = {"n": 2**14, "r": 8, "p": 5}
"""The parameters with the least memory, 16 MB, that OWASP recommends."""
SALT_BYTES: Final = 16
TOKEN_BYTES: Final = 20
FAILURES: Final = 10
FORGET_S: Final = 60.0
MOST_CLIENTS: Final = 10_000
MOST_WAITING: Final = 10
"""How many logins may wait for their turn. Beyond that, the login from the address with the most failures fails."""
MOST_OF_A_NAME: Final = 100


class TooManyFailuresError(Exception):
    """Raised when a client has failed to log in too often within a minute."""


@dataclass(frozen=True, slots=True)
class _Account:
    user: User
    salt: bytes
    digest: bytes


@dataclass
class _Failures:
    """The failed logins of each client address within the last minute, which limit how many passwords it can try."""

    counts: dict[str, tuple[float, int]] = field(default_factory=dict)

    def check(self, client: str, now_s: float) -> int:
        """Return how many logins of a client failed; ``TooManyFailuresError`` if there were too many."""
        since, count = self.counts.get(client, (now_s, 0))
        if now_s - since >= FORGET_S:
            return 0
        if count >= FAILURES:
            raise TooManyFailuresError
        return count

    def note(self, client: str, now_s: float) -> None:
        since, count = self.counts.pop(client, (now_s, 0))
        self.counts[client] = (now_s, 1) if now_s - since >= FORGET_S else (since, count + 1)
        if len(self.counts) > MOST_CLIENTS:
            del self.counts[next(iter(self.counts))]


@dataclass(eq=False)
class _Waiting:
    """A login that waits for its turn."""

    client: str
    failures: int
    turn: asyncio.Future[None]


class _Counter:
    """Checks logins one at a time, first those from addresses with the fewest failures; only a few may wait."""

    def __init__(self, failures: _Failures) -> None:
        self._failures = failures
        self._waiting: list[_Waiting] = []
        self._is_taken = False

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for the turn; ``TooManyFailuresError`` if too many others with fewer failures wait."""
        count = self._failures.check(client, time.monotonic())
        if self._is_taken:
            own = sum(each.client == client for each in self._waiting)
            waits = _Waiting(client, count + own, asyncio.get_running_loop().create_future())
            self._waiting.append(waits)
            if len(self._waiting) > MOST_WAITING:
                last = max(self._waiting, key=lambda each: (each.failures, random()))
                self._waiting.remove(last)
                last.turn.set_exception(TooManyFailuresError())
            try:
                await waits.turn
            except asyncio.CancelledError:
                if waits in self._waiting:
                    self._waiting.remove(waits)
                elif waits.turn.done() and not waits.turn.cancelled():
                    self._pass_on()
                raise
        self._is_taken = True
        try:
            self._failures.check(client, time.monotonic())
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        self._is_taken = bool(self._waiting)
        if self._waiting:
            first = min(self._waiting, key=lambda each: (each.failures, random()))
            self._waiting.remove(first)
            first.turn.set_result(None)


class BasicAuth:
    """Names and passwords: lines ``name:role:salt:digest`` as ``fastq web --new-user`` prints them."""

    challenge = REALM

    def __init__(self, lines: Sequence[str]) -> None:
        self._accounts = dict(_account(line) for line in _meant(lines))
        if not self._accounts:
            raise ValueError("no user is listed; fastq web --new-user NAME:ROLE makes a line")
        self._failures = _Failures()
        # Logins are checked one at a time: otherwise a client could try many passwords at once, before a failure is
        # counted.
        self._counter = _Counter(self._failures)
        # A browser sends the password with every request, and scrypt takes 0.2 s. So correct logins are remembered, as
        # digests made with a key that only this process has.
        self._key = os.urandom(32)
        self._known: dict[bytes, User] = {}
        self._nobody = _Account(User("", Role.VIEWER), os.urandom(SALT_BYTES), b"")

    async def __call__(self, request: Request) -> User | None:
        """Return the user whose name and password the request has."""
        said = _credentials(request, "basic")
        if said is None:
            return None
        try:
            name, colon, password = base64.b64decode(said, validate=True).decode().partition(":")
        except ValueError:
            return None
        client = address_of(_client(request))
        mark = hmac.digest(self._key, f"{name}:{password}".encode(), "sha256")
        if user := self._known.get(mark):
            return user
        async with self._counter.turn(client):
            account = self._accounts.get(name, self._nobody)  # an unknown name must take as long as a known one
            digest = await asyncio.to_thread(_digest, password, account.salt)
            if colon and hmac.compare_digest(digest, account.digest):
                self._known[mark] = account.user
                return account.user
            self._failures.note(client, time.monotonic())
            return None


class TokenAuth:
    """Bearer tokens for programs: lines ``name:role:sha256 of the token`` as ``--new-token`` prints them."""

    challenge = 'Bearer realm="fastq"'

    def __init__(self, lines: Sequence[str]) -> None:
        self._users: dict[bytes, User] = {}
        for line in _meant(lines):
            parts = line.split(":")
            if len(parts) != 3:
                raise ValueError(f"{parts[0]!r}: a line must be name:role:digest")
            self._users[_unhex(parts[2], parts[0])] = User.of(parts[0], parts[1])
        if not self._users:
            raise ValueError("no token is listed; fastq web --new-token NAME:ROLE makes one")

    def __call__(self, request: Request) -> User | None:
        """Return the user whose token the request has."""
        said = _credentials(request, "bearer")
        return None if said is None else self._users.get(hashlib.sha256(said.encode()).digest())


class ProxyAuth:
    """A header with the user's name, which only a trusted proxy may set; all users have the same rights."""

    challenge = ""

    def __init__(self, header: str, role: Role, trusted: Sequence[str], queues: Sequence[str] = ("*",)) -> None:
        if not trusted:
            raise ValueError(f"--auth header:{header} needs --trusted-proxy: the address of the proxy that sets it")
        self._header, self._role, self._queues = header, role, tuple(queues)
        self._trusted = networks_of(trusted)

    def __call__(self, request: Request) -> User | None:
        """Return the user that the proxy names."""
        names = request.headers.getlist(self._header)
        if len(names) != 1 or not names[0] or not is_one_of(_client(request), self._trusted):
            return None  # if there are two such headers, the client has sent one
        return User(names[0], self._role, self._queues)


def auth_of(spec: str, trusted: Sequence[str] = ()) -> Auth:
    """Return the authentication that ``--auth`` describes; ``ValueError`` names the fault in it."""
    kind, colon, rest = spec.partition(":")
    if not colon or not rest:
        raise ValueError(f"--auth {spec!r}: write basic:FILE, tokens:FILE, header:NAME:ROLE or call:MODULE:ATTR")
    match kind:
        case "basic":
            return BasicAuth(_lines(rest))
        case "tokens":
            return TokenAuth(_lines(rest))
        case "header":
            header, _, rights = rest.partition(":")
            user = User.of("", rights or "viewer")
            return ProxyAuth(header, user.role, trusted, user.queues)
        case "call":
            return _imported(rest)
    raise ValueError(f"--auth {spec!r}: {kind!r} is none of basic, tokens, header, call")


def new_user_line(user: User, password: str) -> str:
    """Return the line of a user for the file of ``--auth basic:FILE``."""
    salt = os.urandom(SALT_BYTES)
    return f"{user.name}:{user.rights}:{salt.hex()}:{_digest(password, salt).hex()}"


def new_token(user: User) -> tuple[str, str]:
    """Return a token, and its line for the file of ``--auth tokens:FILE``."""
    token = base64.urlsafe_b64encode(os.urandom(TOKEN_BYTES)).decode().rstrip("=")
    return token, f"{user.name}:{user.rights}:{hashlib.sha256(token.encode()).hexdigest()}"


def _meant(lines: Sequence[str]) -> list[str]:
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None


def _account(line: str) -> tuple[str, _Account]:
    parts = line.split(":")
    if len(parts) != 4:
        raise ValueError(f"{parts[0]!r}: a line must be name:role:salt:digest")
    name, role, salt, digest = parts
    return name, _Account(User.of(name, role), _unhex(salt, name), _unhex(digest, name))


def _unhex(text: str, name: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"{name!r}: {text!r} is not hexadecimal") from None


def _digest(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, **SCRYPT)


def name_tried(request: Request) -> str | None:
    """Return the user name in a request's login, empty if the login has none; None if the request has no login."""
    said = _credentials(request, "basic")
    if said is None:
        return "" if request.headers.get("authorization") else None
    try:
        return base64.b64decode(said, validate=True).decode().partition(":")[0][:MOST_OF_A_NAME]
    except ValueError:
        return ""


def _credentials(request: Request, scheme: str) -> str | None:
    said, _, rest = request.headers.get("authorization", "").partition(" ")
    return rest.strip() if said.lower() == scheme and rest.strip() else None


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _imported(place: str) -> Auth:
    module, _, attribute = place.partition(":")
    try:
        found: Auth = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--auth call:{place}: {error}") from None
    if not callable(found):
        raise ValueError(f"--auth call:{place}: {found!r} is not callable")
    return found
