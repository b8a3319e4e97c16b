"""A profile with round figures, by which answers can be reckoned by hand."""

from dataclasses import replace
from typing import Any

from hypothesis import settings

from fastq.planning.profile import Costs, Curve, Machine, Profile, RedisFacts, ServerFacts, Wakes

relaxed = settings(deadline=None, max_examples=40)

US = 1e-6


def flat(value: float) -> Curve:
    return Curve(((100.0, value), (1000.0, value)))


def profile() -> Profile:
    """Return 10 us of Redis to enqueue and process, 10 us of the main process, nothing else; 1 kB a task in Redis."""
    return Profile(
        version=1,
        fastq="0.1.0",
        python="3.11.7",
        measured_at="2026-11-21T07:00:00Z",
        seconds=60.0,
        children=2,
        loop_s=3e-8,
        machine=Machine("box", 4.0, 16 * 2**30, 1.0, 0.0),
        redis=RedisFacts("Redis 7.0.15", True, 3e-5, 0, 2**20),
        costs=Costs(
            enqueue_one_redis=flat(20 * US),
            enqueue_one_client=flat(40 * US),
            enqueue_many_redis=flat(4 * US),
            enqueue_many_client=flat(2 * US),
            process_redis=flat(6 * US),
            process_main=flat(10 * US),
            process_child=flat(0.0),
            redis_received=Curve(((0.0, 300.0), (1000.0, 1300.0))),
            redis_sent=Curve(((0.0, 200.0), (1000.0, 1200.0))),
            redis_memory=Curve(((0.0, 600.0), (1000.0, 1600.0))),
            completed_redis_s=2 * US,
            completed_memory_bytes=100.0,
            coroutine_main_s=0.0,
            coroutine_child_s=10 * US,
            wait_child_s=50 * US,
        ),
        server=ServerFacts(
            backlog_main=Wakes(0.0, 0.0),
            backlog_redis=Wakes(0.0, 0.0),
            steady_main=Wakes(0.0, 0.0),
            steady_redis=Wakes(0.0, 0.0),
            coroutine_wakes=1.0,
            overlap=0.0,
            no_op_rate=60_000.0,
            slot_gap_s=0.0,
            coroutine_gap_s=Curve(((0.005, 0.0), (0.05, 0.0))),
            main_memory_bytes=50 * 2**20,
            child_memory_bytes=10 * 2**20,
            idle_commands_a_s=1.0,
            idle_main_cores=0.001,
            idle_redis_cores=0.001,
        ),
    )


def with_costs(base: Profile, **changed: Any) -> Profile:
    return replace(base, costs=replace(base.costs, **changed))


def with_server(base: Profile, **changed: Any) -> Profile:
    return replace(base, server=replace(base.server, **changed))
