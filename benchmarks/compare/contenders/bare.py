"""The bare scripts: what Redis can do at most for asynq's keyspace."""

from benchmarks.compare.contender import Contender, Guarantee, Kind, Rates, module
from benchmarks.compare.contenders.asynq_left import asynq_left

BARE = Contender(
    name="bare",
    title="bare scripts",
    guarantee=Guarantee.LEAST,
    detail="leases are written, but nobody extends them or looks for lost ones",
    settings="one process, fastq's scripts in a loop without handlers, 500 tasks a round trip; "
    "the enqueued messages are encoded within the time",
    guess=Rates(each=14_000, many=220_000, noop=150_000),
    produce=module("bare_app", "produce"),
    work=lambda place: [module("bare_app", "work")(place)],
    left=asynq_left,
    handlers=1,
    kinds=frozenset({Kind.NOOP}),
    latency=False,
)
