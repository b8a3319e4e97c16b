"""A PostgreSQL as the harness looks at it: by the few calls that it makes of a client of Redis."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import psycopg

from benchmarks.compare.conditions import Condition, There, proxy
from benchmarks.compare.family import TICK, processes
from tests.postgres import Postgres, postgres


class Database:
    """A running server."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._connection: Any = None

    @contextmanager
    def client(self) -> Iterator["Database"]:
        """Connect the harness."""
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
    """Run PostgreSQL, and what is before it: with fsync where Redis would keep its data, too."""
    with ExitStack() as stack:
        server = stack.enter_context(postgres(100, is_synced=bool(condition.config)))
        far = proxy(server.port, condition.away_ms) if condition.away_ms else nullcontext(server.port)
        yield There(Database(server), stack.enter_context(far), "postgresql")
