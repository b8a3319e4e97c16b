"""Go asynq, the program in ``goasynq``."""

from benchmarks.compare.contender import Contender, Guarantee, Rates
from benchmarks.compare.contenders.asynq_left import asynq_left, asynq_put_off

ASYNQ = Contender(
    name="asynq",
    title="Go asynq",
    guarantee=Guarantee.LEAST,
    detail="lease of 30 s, extended while the worker lives",
    settings="concurrency 10 as in its examples, everything else as it comes (TaskCheckInterval 1 s: an idle server "
    "looks that often); bulk from 50 goroutines, as 0.26.0 has no call for many",
    guess=Rates(each=10_000, many=50_000, noop=9_500),
    produce=lambda place: [place.program, "produce"],
    work=lambda place: [[place.program, "work"]],
    work_waiting=lambda place: [[place.program, "wait"]],
    settings_waiting="concurrency 64",
    left=asynq_left,
    put_off=asynq_put_off,
    handlers=1,
    environment="go",
    package="github.com/hibiken/asynq",
)
