"""A PostgreSQL as the harness looks at it: by the few calls that it makes of a client of Redis."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import pytest

from benchmarks.compare.conditions import Condition, There, proxy
from benchmarks.compare.family import TICK, processes
from benchmarks.compare.producer import TurnError
from tests.postgres import Postgres, postgres


class Database:
    """A running server."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._connection: Any = None

    @contextmanager
    def client(self) -> Iterator["Database"]:
        """Connect the harness."""
        import psycopg

        with psycopg.connect(self._server.dsn, autocommit=True) as self._connection:
            yield self

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        return int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def flushall(self) -> None:
        """Empty all tables."""
        named = self._connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        self._connection.execute("TRUNCATE " + ", ".join(name for (name,) in named))

    def info(self, section: str) -> dict[str, float]:
        """Return the seconds of CPU that all its processes have used."""
        pid = self._server.pid
        ticks = sum(one.cpu_ticks for one in processes() if pid in (one.pid, one.parent))
        return {"used_cpu_user": ticks / TICK, "used_cpu_sys": 0.0}


@contextmanager
def postgres_server(condition: Condition) -> Iterator[There]:
    """Run PostgreSQL, and what is before it; it may lose as much as Redis: all, or the last second."""
    if condition.is_tls:
        raise TurnError("PostgreSQL has no TLS here")
    durability = ("-c", "synchronous_commit=off") if condition.config else ("-F",)
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres(100, durability))
        except pytest.skip.Exception as error:
            raise TurnError(str(error)) from None
        far = proxy(server.port, condition.away_ms) if condition.away_ms else nullcontext(server.port)
        yield There(Database(server), stack.enter_context(far), "postgresql")
