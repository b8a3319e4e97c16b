"""An embedding service from end to end: texts in by ``submit_many``, vectors out by ``as_completed``.

``python -m benchmarks.bench_embeddings`` starts a private Redis and ``fastq-worker benchmarks.embeddings_app:app``,
with torch if it is installed (and on the GPUs, if there are any), else with numpy. Its parts, by ``--parts``:

bare-1, bare-64, bare-256  a loop that calls the model, without a queue
one, 64, 256, list         a call for each task; for up to 64 or 256 tasks; a task of 64 texts
64x2                       as 64, with two children for each GPU
kill                       SIGKILL of the worker in the middle; another one goes on
successors                 a child is replaced after some calls, and once after SIGKILL: who is on the GPU then?

A part enqueues texts for ``--seconds`` at most, and has ``--limit`` seconds in all. A table and, with ``--json``, a
file tell of all parts. Exit 1 if one failed or a text is missing.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks.embeddings_app import BACKEND, SIZES, load, made
from benchmarks.embeddings_watch import Cost, Watch, calls_in, cost, loads_in
from fastq import Client, Handle
from fastq.common.devices import find_devices
from fastq.testing import embedded_redis

READY_S: Final = 90.0
TOGETHER: Final = 2000
ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
COLUMNS: Final = {
    "texts": "texts",
    "rate": "texts/s",
    "calls": "calls",
    "model_busy": "model busy",
    "gpu_busy": "GPU busy",
    "gpu_mb": "GPU MB",
    **{f"{name}_us": f"{name} us" for name in Cost._fields},
}
Figures = dict[str, Any]


def texts() -> Iterator[str]:
    """Yield texts of twenty to sixty words, the same ones each time, without end."""
    words = random.Random(7)
    while True:
        yield " ".join(f"w{words.randrange(20_000)}" for _ in range(words.randrange(20, 60)))


class Site:
    """A Redis, the files of a run, and how its workers are started."""

    def __init__(self, url: str, folder: Path, args: argparse.Namespace) -> None:
        self.url = url
        self.log = folder / "calls"
        self.args = args
        self._output = folder / "worker.log"

    def clear(self) -> None:
        """Forget all that a part has left."""
        self.log.unlink(missing_ok=True)
        with redis.Redis.from_url(self.url) as db:
            db.flushall()

    def some(self) -> Iterator[str]:
        """Yield texts until there are enough, or time is up."""
        until_s = time.monotonic() + self.args.seconds
        for text in islice(texts(), self.args.texts):
            yield text
            if time.monotonic() > until_s:
                return

    @contextmanager
    def worker(self, children: int, *flags: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a worker that is ready, and stop it."""
        command = [sys.executable, "-m", "fastq.cli.worker", "benchmarks.embeddings_app:app", "--queues", "embed"]
        command += ["--concurrency", str(children), "--start-timeout", f"{READY_S:.0f}", *flags]
        command += ["--devices", self.args.devices] if self.args.devices else []
        env = {**os.environ, **ONE_THREAD, "FASTQ_REDIS_URL": self.url, "EMBEDDINGS_LOG": str(self.log)}
        with self._output.open("wb") as output:
            process = subprocess.Popen(command, env=env, stdout=output, stderr=output)
        try:
            until_s = time.monotonic() + READY_S
            while b"ready: " not in self._output.read_bytes():
                if process.poll() is not None or time.monotonic() > until_s:
                    raise RuntimeError(f"the worker does not start:\n{self._output.read_text()}")
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def calls(self) -> tuple[int, int, float]:
        """Return the calls of the model so far, the texts in them, and the seconds that they took."""
        found = list(calls_in(self.log))
        return len(found), sum(count for count, _ in found), sum(seconds for _, seconds in found)


class LimitError(Exception):
    """A part took too long; a TimeoutError would be taken for one of a connection."""


def submitted(site: Site, client: Client, way: str) -> list[Handle[Any]]:
    """Enqueue texts, some thousands at once, until there are enough or time is up."""
    tasks, handles = made(way, site.some()), list[Handle[Any]]()
    while some := list(islice(tasks, TOGETHER)):
        handles += client.submit_many(some)
    return handles


def ends(site: Site, client: Client, way: str) -> Iterator[tuple[int, int]]:
    """Enqueue all, and yield for each task that ends how many texts it embedded, and how many tasks there are."""
    handles = submitted(site, client, way)
    for handle in client.as_completed(handles):
        vectors = handle.result()
        yield (1 if isinstance(vectors, bytes) else len(vectors)), len(handles)


def checked(count: int, tasks: int, way: str) -> None:
    """Raise if a text has no vector."""
    if count < (tasks if way != "list" else 64 * (tasks - 1) + 1):
        raise RuntimeError(f"{count} texts of {tasks} tasks came back")


def measure(site: Site, way: str, children: int) -> Figures:
    """Run one way to hand texts to the model."""
    with (
        Client(site.url, max_pending=site.args.max_pending) as client,
        site.worker(children) as process,
        Watch() as watch,
    ):
        before, began_s = cost(process.pid, site.url), time.perf_counter()
        found = list(ends(site, client, way))
        wall_s = time.perf_counter() - began_s
        used = [now - then for now, then in zip(cost(process.pid, site.url), before, strict=True)]
    count = sum(each for each, _ in found)
    checked(count, len(found), way)
    calls, _, busy_s = site.calls()
    per_text = {f"{name}_us": 1e6 * each / count for name, each in zip(Cost._fields, used, strict=True)}
    return {
        "texts": count,
        "rate": count / wall_s,
        "calls": calls,
        "model_busy": busy_s / wall_s / children,
        **watch.told(),
        **per_text,
    }


def bare(site: Site, size: int) -> Figures:
    """Call the model in one process, in a loop."""
    code = "import sys; from benchmarks.bench_embeddings import loop; loop(*map(int, sys.argv[1:]))"
    command = [sys.executable, "-c", code, str(site.args.texts), str(size), str(site.args.seconds)]
    done = subprocess.run(command, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout))


def loop(count: int, size: int, seconds: int) -> None:
    """Do what the service does, without a queue, and print the figures."""
    embed, some, done, calls = load(), islice(texts(), count), 0, 0
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    with Watch() as watch:
        while (wall_s := time.perf_counter() - began_s) < seconds and (batch := list(islice(some, size))):
            done, calls = done + len(embed(batch)), calls + 1
        cpu_us = 1e6 * (time.process_time() - began_cpu_s) / done
    figures = {"texts": done, "rate": done / wall_s, "calls": calls, "model_busy": 1.0, "children_us": cpu_us}
    print(json.dumps(figures | watch.told()))


def kill(site: Site, children: int) -> Figures:
    """Kill the worker in the middle, and start another."""
    with Client(site.url, max_pending=site.args.max_pending) as client:
        with site.worker(children) as process:
            handles = submitted(site, client, "64")
            ended = 0
            for _ in client.as_completed(handles[: len(handles) // 2]):
                ended += 1
            process.send_signal(signal.SIGKILL)
            process.wait()
        with site.worker(children):
            count = sum(len(handle.result()) > 0 for handle in client.as_completed(handles))
    checked(count, len(handles), "64")
    return {"texts": count, "ended_before": ended, "ran_twice": site.calls()[1] - count, "calls": site.calls()[0]}


def successors(site: Site) -> Figures:
    """Let children follow each other on one device; the last predecessor dies by SIGKILL."""
    calls = max(1, site.args.texts // 64 // 4)  # so that about four follow each other
    with (
        Client(site.url, max_pending=site.args.max_pending) as client,
        site.worker(1, "--max-tasks-per-child", str(calls)),
        Watch() as watch,
    ):
        handles = submitted(site, client, "64")
        count, is_killed = 0, False
        for handle in client.as_completed(handles):
            count += len(handle.result()) > 0
            if not is_killed and count > len(handles) // 2:
                os.kill(loads_in(site.log)[-1][0], signal.SIGKILL)
                is_killed = True
    checked(count, len(handles), "64")
    loads = loads_in(site.log)
    return {
        "texts": count,
        "calls": site.calls()[0],
        "starts": len(loads),
        "predecessors_there": max(there for _, there, *_ in loads[1:]),
        "mb_before_load": [before for *_, before, _ in loads],
        "mb_after_load": [after for *_, after in loads],
        "ran_twice": site.calls()[1] - count,
        **watch.told(),
    }


def parts_of(site: Site, gpus: int) -> dict[str, Callable[[], Figures]]:
    """Return all parts by name."""
    children = site.args.children
    ways: dict[str, Callable[[], Figures]] = {f"bare-{size}": partial(bare, site, size) for size in (1, 64, 256)}
    ways |= {way: partial(measure, site, way, children) for way in ("one", "64", "256", "list")}
    ways["64x2"] = partial(measure, site, "64", 2 * max(1, gpus))
    return ways | {"kill": partial(kill, site, children), "successors": partial(successors, site)}


def limited(part: Callable[[], Figures], seconds: int) -> Figures:
    """Return the figures of a part, or its error, in so many seconds."""

    def raised(*_: object) -> None:
        raise LimitError(f"not done in {seconds} s")

    signal.signal(signal.SIGALRM, raised)
    signal.alarm(seconds)
    try:
        return part()
    except Exception as error:  # noqa: BLE001 - the other parts can be measured all the same
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        signal.alarm(0)


def shown(name: str, found: Figures) -> str:
    """Return the line of a part: what has no column stands behind the others."""
    cells = [f"{name:11}"]
    for key, title in COLUMNS.items():
        figure = found.get(key)
        text = "-" if figure is None else f"{figure:.0%}" if key.endswith("_busy") else f"{figure:,.0f}"
        cells.append(f"{text:>{max(8, len(title))}}")
    rest = [f"{key} {figure}" for key, figure in found.items() if key not in COLUMNS]
    return "  ".join([*cells, *rest])


def main() -> None:
    """Run the parts that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--limit", type=int, default=120)
    parser.add_argument("--parts", default="", help="with commas  [default: all]")
    parser.add_argument("--model", choices=SIZES, default="small", help="of torch")
    parser.add_argument("--children", type=int, default=0, help="default: one for each GPU, else one")
    parser.add_argument("--devices", default=None, help="as of fastq-worker  [default: auto if there is a GPU]")
    parser.add_argument("--max-pending", type=int, default=20_000)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    gpus = find_devices()
    os.environ["EMBEDDINGS_MODEL"] = args.model
    if args.devices is None:
        args.devices = "auto" if gpus and BACKEND == "torch" else ""
    args.children = args.children or (len(gpus) if args.devices == "auto" else 1)
    about = {"backend": BACKEND, "model": args.model, "gpus": len(gpus), "cores": os.cpu_count()}
    print(*(f"{key} {each}" for key, each in about.items()), f"load {os.getloadavg()[0]:.1f}", sep=", ")
    print(f"{'part':11}", *(f"{title:>8}" for title in COLUMNS.values()), sep="  ", flush=True)
    results: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="fastq-embeddings-") as folder, embedded_redis() as url:
        site = Site(url, Path(folder), args)
        parts = parts_of(site, len(gpus))
        for name in args.parts.split(",") if args.parts else parts:
            site.clear()
            results[name] = limited(parts[name], args.limit)
            print(shown(name, results[name]), flush=True)
            if args.json:
                args.json.write_text(json.dumps({"about": about, "parts": results}, indent=2))
    if any("error" in found for found in results.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
