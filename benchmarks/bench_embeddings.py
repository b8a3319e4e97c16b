"""An embedding service from end to end: texts in by ``submit_many``, vectors out by ``as_completed``.

``python -m benchmarks.bench_embeddings`` starts a private Redis and ``fastq-worker benchmarks.embeddings_app:app``,
with torch if it is installed (and on the GPUs, if there are any), else with numpy. For each way to hand texts to the
model it prints texts a second, the CPU time of the worker for each text, and the share of the time that the model was
busy, beside a bare loop that calls the model with ``--size`` texts. At last it kills the worker (SIGKILL) half-way,
starts another, and counts what ran twice. Exit 1 if a text is missing.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.embeddings_app import BACKEND, made
from fastq import Client
from fastq.common.devices import find_devices
from fastq.testing import embedded_redis

READY_S: Final = 120.0
BARE: Final = """
import sys, time
from benchmarks.embeddings_app import load
texts, size = open(sys.argv[1]).read().splitlines(), int(sys.argv[2])
embed, began = load(), time.perf_counter()
for at in range(0, len(texts), size):
    embed(texts[at:at + size])
print(len(texts) / (time.perf_counter() - began))
"""


def written(count: int) -> list[str]:
    """Return texts of about twenty words, the same ones each time."""
    words = random.Random(7)
    return [" ".join(f"w{words.randrange(20_000)}" for _ in range(words.randrange(10, 30))) for _ in range(count)]


class Watch(threading.Thread):
    """A thread that notes how busy the GPUs are, where ``nvidia-smi`` tells it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[float] = []
        self.ends = threading.Event()

    def run(self) -> None:
        """Ask twice a second."""
        if not (program := shutil.which("nvidia-smi")):
            return
        command = [program, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self.ends.wait(0.5):
            answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
            self.seen += [float(each) for each in answer if each.isdigit()]

    def told(self) -> str:
        """Return the mean, once it has ended."""
        self.ends.set()
        self.join()
        return f"{sum(self.seen) / len(self.seen):.0f} %" if self.seen else "-"


class Site:
    """A Redis, the files of a run, and how its workers are started."""

    def __init__(self, url: str, folder: Path, args: argparse.Namespace) -> None:
        self.url = url
        self.calls = folder / "calls"
        self._log = folder / "worker.log"
        self._args = args

    @contextmanager
    def worker(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a worker that is ready, and stop it."""
        where = ["--devices", self._args.devices] if self._args.devices else []
        count = ["--concurrency", str(self._args.children)] if self._args.children else []
        command = [sys.executable, "-m", "fastq.cli.worker", "benchmarks.embeddings_app:app", "--queues", "embed"]
        with self._log.open("wb") as log:
            env = {**os.environ, "FASTQ_REDIS_URL": self.url, "EMBEDDINGS_LOG": str(self.calls), "OMP_NUM_THREADS": "1"}
            env |= {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            process = subprocess.Popen([*command, *where, *count], env=env, stdout=log, stderr=log)
        try:
            until_s = time.monotonic() + READY_S
            while b"ready: " not in self._log.read_bytes():
                if process.poll() is not None or time.monotonic() > until_s:
                    raise SystemExit(f"the worker does not start:\n{self._log.read_text()}")
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()
            process.wait()

    def told(self) -> tuple[int, int, float]:
        """Return the calls of the model so far, the texts in them, and the seconds that they took."""
        lines = [line.split() for line in self.calls.read_text().splitlines()] if self.calls.exists() else []
        return len(lines), sum(int(count) for count, _ in lines), sum(float(seconds) for _, seconds in lines)


def stream(site: Site, client: Client, way: str, texts: Sequence[str], size: int) -> Iterator[int]:
    """Enqueue all, and yield how many texts each task that ends has embedded."""
    for handle in client.as_completed(client.submit_many(made(way, texts, size))):
        vectors = handle.result()
        yield 1 if isinstance(vectors, bytes) else len(vectors)


def measure(site: Site, args: argparse.Namespace, way: str, texts: Sequence[str]) -> None:
    """Run a way, and print its line."""
    site.calls.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    watch = Watch()
    with Client(site.url, max_pending=args.max_pending) as client:
        with site.worker():
            watch.start()
            began_s = time.perf_counter()
            count = sum(stream(site, client, way, texts, args.size))
            wall_s = time.perf_counter() - began_s
            gpu = watch.told()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    calls, _, busy_s = site.told()
    cpu_us = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / len(texts) * 1e6
    busy = busy_s / wall_s / (args.children or 1)
    print(f"{way:6} {count / wall_s:9.0f} {calls:7} {cpu_us:9.0f} {busy:10.0%} {gpu:>6}", flush=True)
    if count != len(texts):
        raise SystemExit(f"{way}: {count} of {len(texts)} texts came back")


def kill(site: Site, args: argparse.Namespace, way: str, texts: Sequence[str]) -> None:
    """Kill the worker in the middle, start another, and print what ran twice."""
    site.calls.unlink(missing_ok=True)
    with Client(site.url, max_pending=args.max_pending) as client:
        ends, count, began_s = stream(site, client, way, texts, args.size), 0, time.perf_counter()
        with site.worker() as process:
            while count < len(texts) // 2:
                count += next(ends)
            process.send_signal(signal.SIGKILL)
            process.wait()
        killed_s = time.perf_counter()
        with site.worker():
            count += sum(ends)
        ended_s = time.perf_counter()
    _, ran, _ = site.told()
    print(
        f"killed after {killed_s - began_s:.1f} s of {ended_s - began_s:.1f}: {count} of {len(texts)} texts came back, "
        f"{ran - len(texts)} ran twice"
    )
    if count != len(texts):
        raise SystemExit(1)


def main() -> None:
    """Run the ways that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument(
        "--ways",
        default="one,batch,list",
        help="one: a call a task; batch: a call for up to 64; list: --size texts in a task",
    )
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--children", type=int, default=0, help="default: one for each GPU, else one")
    parser.add_argument("--devices", default=None, help="as of fastq-worker  [default: auto if there is a GPU]")
    parser.add_argument("--max-pending", type=int, default=20_000)
    args = parser.parse_args()
    gpus = find_devices()
    if args.devices is None:
        args.devices = "auto" if gpus and BACKEND == "torch" else ""
    args.children = args.children or (len(gpus) if args.devices == "auto" else 1)
    texts, ways = written(args.texts), args.ways.split(",")
    with tempfile.TemporaryDirectory(prefix="fastq-embeddings-") as name, embedded_redis() as url:
        folder = Path(name)
        (folder / "texts").write_text("\n".join(texts))
        print(
            f"{BACKEND}, {len(gpus)} GPUs, {args.children} children, {args.texts} texts, load {os.getloadavg()[0]:.1f}"
        )
        bare = [sys.executable, "-c", BARE, str(folder / "texts"), str(args.size)]
        threads = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        rate = subprocess.run(bare, env={**os.environ, **threads}, capture_output=True, text=True, check=True).stdout
        print(f"{'way':6} {'texts/s':>9} {'calls':>7} {'CPU us':>9} {'model busy':>10} {'GPU':>6}")
        print(
            f"{'bare':6} {float(rate):9.0f} {-(-args.texts // args.size):7} {'-':>9} {'100%':>10} {'-':>6}", flush=True
        )
        site = Site(url, folder, args)
        for way in ways:
            measure(site, args, way, texts)
        kill(site, args, "batch" if "batch" in ways else ways[0], texts)


if __name__ == "__main__":
    main()
