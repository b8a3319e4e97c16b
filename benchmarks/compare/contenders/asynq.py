"""Go asynq, the program in ``goasynq``."""

from dataclasses import replace
from functools import partial

from benchmarks.compare.contender import Command, Contender, Guarantee, Place, Rates
from benchmarks.compare.contenders.asynq_left import asynq_left, asynq_put_off


def _work(concurrency: int, place: Place) -> list[Command]:
    return [[place.program, "work", str(concurrency)]]


ASYNQ = Contender(
    name="asynq",
    title="Go asynq",
    guarantee=Guarantee.LEAST,
    detail="lease of 30 s, extended while the worker lives",
    settings="concurrency 10 as in its examples, everything else as it comes (TaskCheckInterval 1 s: an idle server "
    "looks that often); bulk from 50 goroutines, as 0.26.0 has no call for many",
    guess=Rates(each=10_000, many=50_000, noop=9_500),
    produce=lambda place: [place.program, "produce"],
    work=partial(_work, 10),
    work_waiting=partial(_work, 64),
    settings_waiting="concurrency 64",
    left=asynq_left,
    put_off=asynq_put_off,
    handlers=1,
    environment="go",
    package="github.com/hibiken/asynq",
)


def _wider(concurrency: int) -> Contender:
    return replace(
        ASYNQ,
        name=f"asynq-{concurrency}",
        title=f"Go asynq, {concurrency} at once",
        settings=f"concurrency {concurrency}, else as above",
        work=partial(_work, concurrency),
        work_waiting=None,
        settings_waiting="",
    )


ASYNQ_64 = _wider(64)
ASYNQ_256 = _wider(256)
