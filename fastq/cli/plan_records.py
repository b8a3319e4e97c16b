"""A plan as JSON, as in docs/cli.schema.json; infinite values are null."""

import math
from typing import Any

from fastq.planning.load import Load
from fastq.planning.plan import Plan
from fastq.planning.profile import Profile
from fastq.planning.waiting import Waiting


def plan_record(profile: Profile, plan: Plan) -> dict[str, Any]:
    """Describe a plan."""
    use, fleet, memory, redis = plan.use, plan.fleet, plan.memory, plan.redis
    return {
        "measured": {"host": profile.machine.host, "at": profile.measured_at, "redis": profile.redis.version},
        "loads": [_load(load) for load in plan.wish.loads],
        "rate": plan.rate,
        "utilization": plan.wish.utilization,
        "is_enough": plan.is_enough,
        "children_needed": plan.children_needed,
        "servers_needed": plan.servers_needed,
        "servers": fleet.servers,
        "children_a_server": fleet.children,
        "cores_a_server": fleet.cores,
        "server_memory_bytes": round(memory.a_server),
        "cores": {
            "handlers": use.handler_cores,
            "children": use.child_cores,
            "main_processes": use.main_cores,
            "redis": use.redis_cores,
        },
        "wait": _wait(plan.wait),
        "capacity": _finite(plan.capacity),
        "growth": plan.growth,
        "limits": [{"part": part, "share": share, "rate": _finite(rate)} for part, share, rate in plan.limits],
        "redis": {
            "share": redis.share,
            "rate_with_room": _finite(redis.rate_with_room),
            "rate_at_most": _finite(redis.rate_at_most),
            "nodes": redis.nodes,
            "received_bytes_a_s": use.redis_received,
            "sent_bytes_a_s": use.redis_sent,
            "task_bytes": memory.a_task,
            "memory_bytes": round(memory.steady),
            "memory_with_burst_bytes": round(memory.with_burst),
            "memory_limit_bytes": memory.limit or None,
            "full_after_s": _finite(memory.full_after_s),
        },
        "burst": None
        if plan.burst is None
        else {
            "tasks": plan.burst.tasks,
            "enqueue_s": plan.burst.enqueue_s,
            "drain_s": _finite(plan.burst.drain_s),
        },
    }


def _wait(wait: Waiting) -> dict[str, Any]:
    return {
        "probability": wait.probability,
        "mean_s": _finite(wait.mean_s),
        "mean_range_s": [_finite(end_s) for end_s in wait.mean_range],
        "p99_s": _finite(wait.p99_s),
        "p99_range_s": [_finite(end_s) for end_s in wait.p99_range],
    }


def _load(load: Load) -> dict[str, Any]:
    return {
        "rate": load.rate,
        "duration_s": load.duration,
        "cpu_s": load.cpu_s,
        "payload_bytes": load.payload,
        "async": load.is_async,
        "retention_s": load.retention,
        "result_bytes": load.result,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
