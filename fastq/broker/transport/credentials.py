"""Credentials that change: tokens that a function of the user's returns, or a password in a file.

fastq asks for them at a login, and once a minute while there are calls. Once they have changed, each connection logs in
again before its next call. Connections that only listen keep their login: if Redis closes them for that, they are
opened again.
"""

import asyncio
import logging
import pkgutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias

from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError, RedisError

from fastq.broker.transport.faults import CredentialsError

Ask: TypeAlias = Callable[[str], Awaitable[object]]
"""A function that has the user's function of the given name called elsewhere, in bounded time; returns the result."""

ASK_EVERY_S: Final = 60.0
ASK_AGAIN_S: Final = 5.0
"""The time until the next attempt, if one failed or is still under way."""
ANSWER_WITHIN_S: Final = 10.0
_SEEN: Final = "fastq_credentials"
"""The attribute of a connection that holds the version of its login, or of an earlier login."""

_log = logging.getLogger("fastq")


class Credentials(CredentialProvider):
    """The credentials of one client: the last ones, and where to get new ones.

    ``name`` is ``module:function``, or a path (with a slash) of a file with a password. ``username`` is used if only a
    password is given. If asking fails, the last ones stay in use. ``ask`` is for asyncio; by default a thread asks.
    """

    def __init__(self, name: str, username: str, ask: Ask | None = None) -> None:
        self._name = name
        self._username = username
        self._ask = ask if ask is not None and "/" not in name else None
        self._login: tuple[str, ...] = ()
        self._version = 0
        self._due_s = 0.0

    def get_credentials(self) -> tuple[str, ...]:  # type: ignore[override]  # as AUTH takes them, which redis-py's type forbids
        """Return the words for AUTH; redis-py calls this at each login."""
        self._refresh()
        return self._login

    async def get_credentials_async(self) -> tuple[str, ...]:  # type: ignore[override]  # as above
        """Return the words for AUTH, as redis-py's asyncio connections ask for them."""
        await self._refresh_async()
        return self._login

    def lend(self, pool: Any) -> Any:
        """Lend a connection of a pool that is logged in with the last credentials."""
        self._refresh()
        version = self._version
        try:
            connection = pool.get_connection()
        except AuthenticationError:
            self._due_s = 0.0
            self._refresh()
            if version == self._version:
                raise
            connection = pool.get_connection()
        if self._is_outdated(connection, version):
            try:
                connection.send_command("AUTH", *self._login, check_health=False)
                connection.read_response(disconnect_on_error=False)
            except AuthenticationError as error:
                self._say_refused(error)
            except BaseException:
                connection.disconnect()
                pool.release(connection)
                raise
        return connection

    async def lend_async(self, pool: Any) -> Any:
        """Lend a connection as ``lend`` does."""
        await self._refresh_async()
        version = self._version
        try:
            connection = await pool.get_connection()
        except RedisError as error:
            if not isinstance(error, AuthenticationError) and not isinstance(error.__cause__, AuthenticationError):
                raise
            self._due_s = 0.0
            await self._refresh_async()
            if version == self._version:
                raise
            connection = await pool.get_connection()
        if self._is_outdated(connection, version):
            try:
                await connection.send_command("AUTH", *self._login, check_health=False)
                await connection.read_response(disconnect_on_error=False)
            except AuthenticationError as error:
                self._say_refused(error)
            except BaseException:
                await connection.disconnect(nowait=True)
                await pool.release(connection)
                raise
        return connection

    def _is_outdated(self, connection: Any, version: int) -> bool:
        """Return whether a connection may have an earlier login, and note that it will have the last one.

        ``version`` is that of a connection that was opened just now.
        """
        seen = getattr(connection, _SEEN, version)
        setattr(connection, _SEEN, self._version)
        return bool(seen != self._version)

    def _say_refused(self, error: Exception) -> None:
        _log.warning(
            "Redis refuses the new credentials of %s: %s; open connections keep their login", self._name, error
        )

    def _refresh(self) -> None:
        if self._begin():
            try:
                self._take(self._asked())
            except Exception as error:  # noqa: BLE001 - the user's function may raise anything
                self._fail(error)

    async def _refresh_async(self) -> None:
        if self._begin():
            try:
                if self._ask is not None:
                    given = await self._ask(self._name)
                else:
                    async with asyncio.timeout(ANSWER_WITHIN_S):
                        given = await asyncio.to_thread(self._asked)
                self._take(given)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(error)

    def _begin(self) -> bool:
        """Return whether to ask now; other callers go on with the last credentials meanwhile, if there are any."""
        if self._login and monotonic() < self._due_s:
            return False
        self._due_s = monotonic() + ASK_AGAIN_S
        return True

    def _asked(self) -> object:
        if "/" in self._name:
            return Path(self._name).read_text("utf-8").rstrip("\r\n")
        return pkgutil.resolve_name(self._name)()

    def _take(self, given: object) -> None:
        login = _checked(given, self._username)
        if login != self._login:
            self._login = login
            self._version += 1
        self._due_s = monotonic() + ASK_EVERY_S

    def _fail(self, error: Exception) -> None:
        text = f"no credentials for Redis from {self._name}: {str(error) or type(error).__name__}"
        if not self._login:
            raise CredentialsError(text) from error
        _log.warning("%s; the last ones stay in use", text)


def _checked(given: object, username: str) -> tuple[str, ...]:
    """Return the words for AUTH; the error does not show what was given."""
    pair = tuple(given) if isinstance(given, (tuple, list)) else (username, given)
    if len(pair) != 2 or not all(isinstance(word, str) for word in pair):
        raise TypeError(f"it must return a password, or a user name and a password, not {type(given).__name__}")
    name, password = pair
    if not password:
        raise ValueError("the password is empty")
    return (name, password) if name else (password,)


def credentials_of(pool: Any) -> Credentials | None:
    """Return the credentials of a pool's connections, if they can change."""
    found = pool.connection_kwargs.get("credential_provider")
    return found if isinstance(found, Credentials) else None
