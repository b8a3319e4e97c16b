"""The texts of ``bench_embeddings`` and its model, the ways that Celery's and Ray's own documents have for batches.

``python -m benchmarks.embeddings_rivals celery --texts 20000``, in an environment that also has celery and
celery-batches (or ``ray[data]``), numpy and psutil, starts a private Redis and one worker process with the model. It
prints texts a second, the calls of the model, the CPU time of all processes but the producer for each text, and the
share of the time that the model was busy. Exit 1 if a text is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks.bench_embeddings import ONE_THREAD, texts
from benchmarks.embeddings_app import load
from fastq.testing import embedded_redis

SIZE: Final = 64
WAIT_S: Final = 0.05
READY: Final = b" ready."


class Model:
    """The model, which notes its calls as that of fastq's worker does; Ray makes one for each actor."""

    def __init__(self) -> None:
        self._embed = load()
        self._log = os.open(os.environ["EMBEDDINGS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def vectors(self, some: Sequence[str]) -> list[bytes]:
        """Embed some texts."""
        began_s = time.perf_counter()
        vectors = self._embed(some)
        os.write(self._log, f"{len(some)} {time.perf_counter() - began_s:.6f}\n".encode())
        return vectors

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Embed a batch of Ray Data, which is a dict of columns."""
        return {"vector": self.vectors([str(text) for text in batch["item"]])}


def celery_app() -> tuple[Any, Any]:
    """Return the app and the task of celery-batches' document, which marks each request as done."""
    celery, batches = import_module("celery"), import_module("celery_batches")
    app = celery.Celery("rival", broker=os.environ["RIVAL_REDIS"], backend=os.environ["RIVAL_REDIS"])
    app.conf.update(worker_prefetch_multiplier=4 * SIZE, task_serializer="json", result_serializer="pickle")
    app.conf.update(accept_content=["json"], result_accept_content=["pickle"])
    models: list[Model] = []

    @app.task(base=batches.Batches, flush_every=SIZE, flush_interval=WAIT_S, name="rival.embed")  # type: ignore[untyped-decorator]
    def embed(requests: Sequence[Any]) -> None:
        if not models:
            models.append(Model())
        vectors = models[0].vectors([request.args[0] for request in requests])
        for request, vector in zip(requests, vectors, strict=True):
            app.backend.mark_as_done(request.id, vector, request=request)

    return app, embed


def with_celery(some: Sequence[str], folder: Path) -> Iterator[Callable[[], int]]:
    """Start a worker of one process, yield what sends all texts and waits, and stop the worker."""
    app = ["-A", "benchmarks.embeddings_rivals:APP"]
    command = [sys.executable, "-m", "celery", *app, "worker", "-c", "1", "-l", "INFO"]
    log = folder / "celery.log"
    with embedded_redis() as url, log.open("wb") as output:
        os.environ["RIVAL_REDIS"] = url.replace("unix://", "redis+socket://")
        process = subprocess.Popen([*command, "--without-gossip", "--without-mingle"], stdout=output, stderr=output)
        try:
            while READY not in log.read_bytes():
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.1)
            _, embed = celery_app()

            def run() -> int:
                results = [embed.delay(text) for text in some]
                return sum(isinstance(result.get(), bytes) for result in results)

            yield run
        finally:
            process.terminate()
            process.wait()


def with_ray(some: Sequence[str], folder: Path) -> Iterator[Callable[[], int]]:
    """Yield what maps all texts in batches on an actor that has the model, as the document of Ray Data has it."""
    ray, data = import_module("ray"), import_module("ray.data")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    data.DataContext.get_current().enable_progress_bars = False

    def run() -> int:
        found = data.from_items(list(some)).map_batches(Model, batch_size=SIZE, concurrency=1)
        return sum(isinstance(row["vector"], bytes) for row in found.iter_rows())

    yield run
    ray.shutdown()


def cpu_s() -> float:
    """Return the CPU time of all descendants of this process."""
    psutil = import_module("psutil")
    found = [each.cpu_times() for each in psutil.Process().children(recursive=True)]
    return float(sum(times.user + times.system for times in found))


def main() -> None:
    """Run a way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=("celery", "ray"))
    parser.add_argument("--texts", type=int, default=20_000)
    args = parser.parse_args()
    some = list(islice(texts(), args.texts))
    with tempfile.TemporaryDirectory(prefix="embeddings-") as name:
        calls = Path(name) / "calls"
        os.environ |= {"EMBEDDINGS_LOG": str(calls), **ONE_THREAD}
        for run in (with_celery if args.way == "celery" else with_ray)(some, Path(name)):
            before_s, began_s = cpu_s(), time.perf_counter()
            count = run()
            wall_s, used_s = time.perf_counter() - began_s, cpu_s() - before_s
            lines = [float(line.split()[1]) for line in calls.read_text().splitlines()]
            busy, load_1 = sum(lines) / wall_s, os.getloadavg()[0]
            print(f"{'way':6} {'texts/s':>9} {'calls':>7} {'CPU us':>9} {'model busy':>10}  load {load_1:.1f}")
            print(f"{args.way:6} {count / wall_s:9.0f} {len(lines):7} {used_s / len(some) * 1e6:9.0f} {busy:10.0%}")
            if count != len(some):
                raise SystemExit(f"{count} of {len(some)} texts came back")


APP: Final = celery_app()[0] if "RIVAL_REDIS" in os.environ else None  # a Celery worker imports this module

if __name__ == "__main__":
    main()
