"""Procrastinate: its workers import ``app``; ``main`` is the producer."""

import os
from urllib.parse import urlsplit

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector  # type: ignore[import-not-found]  # in its own

from benchmarks.compare.meter import PAYLOAD, run_async
from benchmarks.compare.produce import serve

CHUNK = 500
DSN = f"host=127.0.0.1 port={urlsplit(os.environ['COMPARE_REDIS_URL']).port} user=app dbname=postgres"

app = App(connector=PsycopgConnector(conninfo=DSN))


async def _work(kind: str, payload: str) -> None:
    await run_async(kind)


work = app.task(name="work", pass_context=False)(_work)


def main() -> None:
    """Enqueue what the harness asks for; the schema is made first."""
    with app.replace_connector(SyncPsycopgConnector(conninfo=DSN)) as producer, producer.open():
        producer.schema_manager.apply_schema()
        task = producer.tasks["work"]

        def each(kind: str, count: int) -> None:
            for _ in range(count):
                task.defer(kind=kind, payload=PAYLOAD)

        def many(kind: str, count: int) -> None:
            for at in range(0, count, CHUNK):
                task.batch_defer(*({"kind": kind, "payload": PAYLOAD} for _ in range(min(CHUNK, count - at))))

        serve(each, many)
