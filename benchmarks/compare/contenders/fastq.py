"""fastq, from this checkout."""

from pathlib import Path

from benchmarks.compare.contender import APPS, Command, Contender, Guarantee, Place, Rates, module
from benchmarks.compare.contenders.asynq_left import asynq_left, asynq_put_off


def _worker(place: Place, *options: str) -> list[Command]:
    command: list[str | Path] = [place.program, "-m", "fastq.cli.worker", f"{APPS}.fastq_app:mux", "--redis", place.url]
    return [[*command, "--concurrency", "2", "--log-level", "warning", *options]]


FASTQ = Contender(
    name="fastq",
    title="fastq",
    guarantee=Guarantee.LEAST,
    detail="lease of 30 s, extended while the worker lives",
    settings="`fastq-worker --concurrency 2`, everything else as it comes; bulk by `enqueue_many`",
    guess=Rates(each=12_000, many=150_000, noop=90_000),
    produce=module("fastq_app"),
    work=_worker,
    work_waiting=lambda place: _worker(place, "--threads", "32"),
    settings_waiting="`--threads 32`",
    left=asynq_left,
    put_off=asynq_put_off,
)
