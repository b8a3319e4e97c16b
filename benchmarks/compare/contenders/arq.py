"""Arq, two workers."""

from typing import Any

from benchmarks.compare.contender import APPS, Command, Contender, Guarantee, Place, Rates, beside, module


def _work(place: Place) -> list[Command]:
    quiet = ("--custom-log-dict", f"{APPS}.arq_app.LOGGING")
    return [beside(place, "arq", f"{APPS}.arq_app.WorkerSettings", *quiet) for _ in range(2)]


def _left(db: Any) -> int:
    return int(db.zcard("arq:queue"))


ARQ = Contender(
    name="arq",
    title="arq",
    guarantee=Guarantee.LEAST,
    detail="stays queued until it has ended; back when its in-progress key expires (job timeout of 300 s + 10 s)",
    settings="two workers, poll delay 10 ms in place of 500 ms, max_jobs 32, results not kept, "
    "its log off; bulk by 32 coroutines",
    guess=Rates(each=2_100, many=5_500, noop=1_800),
    produce=module("arq_app"),
    work=_work,
    left=_left,
    environment="arq",
    package="arq",
)
