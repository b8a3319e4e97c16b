"""rq: the default worker, which forks for each job, and SimpleWorker, which does not."""

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.compare.contender import Command, Contender, Guarantee, Place, Rates, beside, module

DETAIL = "a job whose worker died is listed as failed, unless it was enqueued with `Retry`"


def _pool(worker: str) -> Callable[[Place], Sequence[Command]]:
    words = ("worker-pool", "--num-workers", "2", "--quiet", "--worker-class", worker)
    return lambda place: [beside(place, "rq", *words, "--url", place.url, "default")]


def _left(db: Any) -> int:
    return int(db.llen("rq:queue:default")) + int(db.zcard("rq:wip:default"))


RQ = Contender(
    name="rq",
    title="rq, fork per job",
    guarantee=Guarantee.MOST,
    detail=DETAIL,
    settings="`worker-pool --num-workers 2`, results not kept; bulk by `enqueue_many`, 500 a call",
    guess=Rates(each=2_000, many=11_000, noop=130),
    produce=module("rq_app"),
    work=_pool("rq.Worker"),
    left=_left,
    environment="rq",
    package="rq",
)

RQ_SIMPLE = Contender(
    name="rq-simple",
    title="rq, SimpleWorker",
    guarantee=Guarantee.MOST,
    detail=DETAIL,
    settings="`worker-pool --num-workers 2`, results not kept; bulk by `enqueue_many`, 500 a call",
    guess=Rates(each=2_000, many=11_000, noop=430),
    produce=module("rq_app"),
    work=_pool("rq.SimpleWorker"),
    left=_left,
    environment="rq",
    package="rq",
)
