"""Compute a profile's figures from samples: medians over rounds, curves over payload sizes, costs of wake-ups."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from fastq.planning.profile import Costs, Curve, ServerFacts, Wakes
from fastq.planning.samples import BURSTS, COROUTINE_WAITS, PACES, SIZES, WAIT_S, Sample, Samples

_COROUTINES: Final = 100
_SMALL: Final = 100
_LEAST_OVERLAP: Final = -0.5
_MOST_AWAKE: Final = 0.9


class _Middle:
    """The medians of the samples over the rounds."""

    def __init__(self, samples: Samples) -> None:
        self.by_trial = samples.by_trial

    def __call__(self, trial: str, value: Callable[[Sample], float]) -> float:
        return median(value(sample) for sample in self.by_trial[trial])

    def curve(self, prefix: str, value: Callable[[Sample], float]) -> Curve:
        trials = [name for name in self.by_trial if name.startswith(f"{prefix} ")]
        return Curve.through({float(name.split()[1]): self(name, value) for name in trials})


def costs_of(samples: Samples) -> Costs:
    """Return the costs of a task."""
    middle = _Middle(samples)
    process_main = middle.curve("process", lambda sample: sample.main_s)
    process_redis = middle.curve("process", lambda sample: sample.redis_s)
    process_child = middle.curve("process", lambda sample: sample.child_s)
    small = process_child.at(_SMALL)
    received = {float(size): _both(middle, size, lambda sample: sample.received) for size in SIZES}
    sent = {float(size): _both(middle, size, lambda sample: sample.sent) for size in SIZES}
    memory = middle.curve("enqueue", lambda sample: sample.memory)
    return Costs(
        enqueue_one_redis=middle.curve("single", lambda sample: sample.redis_s),
        enqueue_one_client=middle.curve("single", lambda sample: sample.client_s),
        enqueue_many_redis=middle.curve("enqueue", lambda sample: sample.redis_s),
        enqueue_many_client=middle.curve("enqueue", lambda sample: sample.client_s),
        process_redis=process_redis,
        process_main=process_main,
        process_child=process_child,
        redis_received=Curve.through(received),
        redis_sent=Curve.through(sent),
        redis_memory=memory,
        completed_redis_s=max(0.0, middle("completed", lambda sample: sample.redis_s) - process_redis.at(_SMALL)),
        completed_memory_bytes=max(0.0, middle("completed", lambda sample: sample.memory) - memory.at(_SMALL)),
        coroutine_main_s=0.0,
        coroutine_child_s=max(0.0, middle("coroutines", lambda sample: sample.child_s) - small),
        wait_child_s=max(0.0, middle("waits", lambda sample: sample.child_s) - small),
    )


def _both(middle: _Middle, size: int, value: Callable[[Sample], float]) -> float:
    return middle(f"enqueue {size}", value) + middle(f"process {size}", value)


class _Waking:
    """The additional cost of wake-ups; ``loop_s`` is how long one task keeps the main process and Redis busy."""

    def __init__(self, middle: _Middle, loop_s: float) -> None:
        self._middle = middle
        self._loop_s = loop_s

    def point(self, trial: str, value: Callable[[Sample], float], base_s: float) -> tuple[float, float]:
        """Return a trial's tasks per second, and the CPU seconds of wake-ups per task."""
        rate = self._middle(trial, lambda sample: sample.rate)
        part = rate * (self._middle(trial, value) - base_s) / max(0.1, 1 - rate * self._loop_s)
        return rate, asleep(part) / rate

    def fit(self, trials: Sequence[str], value: Callable[[Sample], float], base_s: float) -> Wakes:
        """Return ``Wakes`` fitted to some trials."""
        return fit_wakes([self.point(trial, value, base_s) for trial in trials])

    def bunching(self, plain: Wakes, main_s: float) -> float:
        """Return how many wake-ups coroutines cause, as a share of the wake-ups of plain tasks."""
        parts = []
        for trial in COROUTINE_WAITS:
            rate, waking_s = self.point(trial, _main_of, main_s)
            plain_s = plain.a_task(rate)
            parts.append(min(1.0, max(0.0, waking_s / plain_s)) if plain_s else 1.0)
        return median(parts)


def _main_of(sample: Sample) -> float:
    return sample.main_s


def _redis_of(sample: Sample) -> float:
    return sample.redis_s


def server_of(samples: Samples, costs: Costs, children: int) -> ServerFacts:
    """Return the behavior of a server."""
    middle = _Middle(samples)
    main_s, redis_s = costs.process_main.at(_SMALL), costs.process_redis.at(_SMALL)
    no_op = f"process {_SMALL}"
    rates = [sample.rate for sample in samples.by_trial[no_op]]
    overlap = median(
        (sample.main_s + sample.redis_s - 1 / sample.rate) / min(sample.main_s, sample.redis_s)
        for sample in samples.by_trial[no_op]
    )
    overlap = min(1.0, max(_LEAST_OVERLAP, overlap))
    loop_s = main_s + redis_s - overlap * min(main_s, redis_s)

    waking = _Waking(middle, loop_s)
    backlog, steady = ("waits", *BURSTS), tuple(PACES)
    single_s = costs.enqueue_one_redis.at(_SMALL)
    backlog_main = waking.fit(backlog, _main_of, main_s)
    return ServerFacts(
        backlog_main=backlog_main,
        backlog_redis=waking.fit(backlog, _redis_of, redis_s),
        steady_main=waking.fit(steady, _main_of, main_s),
        steady_redis=waking.fit(steady, _redis_of, redis_s + single_s),
        coroutine_wakes=waking.bunching(backlog_main, main_s),
        overlap=overlap,
        no_op_rate=median(rates),
        slot_gap_s=max(0.0, children / middle("waits", lambda sample: sample.rate) - WAIT_S),
        coroutine_gap_s=Curve.through(
            {
                wait_s: _COROUTINES * children / middle(trial, lambda sample: sample.rate) - wait_s
                for trial, wait_s in COROUTINE_WAITS.items()
            }
        ),
        main_memory_bytes=samples.main_memory,
        child_memory_bytes=samples.child_memory,
        idle_commands_a_s=middle("idle", lambda sample: sample.calls_a_s),
        idle_main_cores=middle("idle", lambda sample: sample.main_s * sample.rate),
        idle_redis_cores=middle("idle", lambda sample: sample.redis_s * sample.rate),
    )


def asleep(part: float) -> float:
    """Return the seconds of wake-ups per second, given the share of idle time awake; the inverse of ``model.awake``."""
    return min(part, _MOST_AWAKE) / (1 - min(part, _MOST_AWAKE))


def fit_wakes(points: Sequence[tuple[float, float]]) -> Wakes:
    """Fit ``first_s / (1 + rate * shared_s)``, the cost of wake-ups per task, to (tasks per second, CPU seconds)
    points.

    Its inverse is a straight line over the rate; each point is weighted by its relative error. The fit does not
    extrapolate far below the slowest trial: no wake-up costs more than 1.5 times the largest measured cost.
    """
    kept = [(rate, extra_s) for rate, extra_s in points if extra_s > 0]
    if not kept:
        return Wakes(0.0, 0.0)
    most_s = 1.5 * max(extra_s for _, extra_s in kept)
    aa = sum(y * y for _, y in kept)
    ab = sum(x * y * y for x, y in kept)
    bb = sum((x * y) ** 2 for x, y in kept)
    a, b = sum(y for _, y in kept), sum(x * y for x, y in kept)
    determinant = aa * bb - ab * ab
    constant = (a * bb - b * ab) / determinant if determinant else 0.0
    first_s = min(most_s, 1 / constant) if constant > 0 else most_s
    # With first_s fixed, fit only the slope: how much a task saves for each further task per second.
    slope = sum(x * y * (1 - y / first_s) for x, y in kept) / bb
    return Wakes(first_s, max(0.0, slope * first_s))


def crowding_of(samples: Samples) -> float:
    """Return the CPU time of a computation while all cores are busy, divided by its CPU time alone."""
    middle = _Middle(samples)
    alone = middle("alone", lambda sample: sample.child_s)
    return max(1.0, middle("together", lambda sample: sample.child_s) / alone) if alone else 1.0


def others_of(samples: Samples) -> float:
    """Return how many cores other processes kept busy during the measurement."""
    every = [sample.others_cores for trial in samples.by_trial.values() for sample in trial]
    return median(every)
