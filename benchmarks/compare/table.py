"""A run's figures as Markdown: medians with their range, costs, how each contender was set up, and fastq's ratios."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks.compare.contender import KINDS, Guarantee, Kind
from benchmarks.compare.meter import CPU_S
from benchmarks.compare.record import Entry, Record
from benchmarks.compare.turn import Figures

NONE = "-"
NO_QUEUES = ("bare", "brpop")
PYTHONS_NOT = ("bare", "fastq", "asynq")


def markdown(record: Record) -> str:
    """Return both tables, the ratios, and the notes."""
    entries = [entry for entry in record.entries if entry.rounds]
    parts = [
        f"Redis: {record.condition}. Tasks per second, enqueued: median (range)\n",
        *_enqueued(entries),
        "\nTasks per second, run: median (range)\n",
        *_run(entries),
        "\nMedians: from the call of enqueue to the handler's first line on an idle worker, and from when a 1 ms task "
        "was due at 70 % of that rate (samples of all rounds); memory of all worker processes; CPU per task of "
        "workers, without the handler's own, and of Redis\n",
        *_costs(entries),
        "",
        *_ratios({entry.name: entry for entry in entries}),
        "",
        *(f"- {entry.title} {entry.version}: {_settings(entry)}. {_promise(entry)}." for entry in entries),
        *(f"- {entry.title}: failed: {'; '.join(entry.failures)}" for entry in record.entries if entry.failures),
        "",
        _where(record),
    ]
    return "\n".join(parts) + "\n"


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the sample below which that share of them is."""
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * share))]


def ratio(mine: Entry, other: Entry) -> float:
    """Return the median of the ratios of no-op rates, round by round."""
    return statistics.median(_noop(a) / _noop(b) for a, b in zip(mine.rounds, other.rounds, strict=False))


def _enqueued(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| queue | a task of a dead worker runs | one by one | in bulk | producer, µs a task | Redis, µs a task |"
    yield "|---|---|---|---|---|---|"
    for entry in entries:
        costs = [_short(_median(entry, read)) for read in (_producer_us, _enqueue_redis_us)]
        cells = [*(_spread(entry, read) for read in (_each, _many)), *costs]
        yield f"| {_name(entry)} | {entry.guarantee} | {' | '.join(cells)} |"


def _run(entries: Sequence[Entry]) -> Iterator[str]:
    yield f"| queue | {' | '.join(KINDS.values())} |"
    yield "|---" * (1 + len(KINDS)) + "|"
    for entry in entries:
        yield f"| {_name(entry)} | {' | '.join(_spread(entry, _rate(kind)) for kind in KINDS)} |"


def _costs(entries: Sequence[Entry]) -> Iterator[str]:
    kinds = [kind for kind in KINDS if kind is not Kind.WAIT]
    titles = [f"{KINDS[kind]}, µs" for kind in kinds]
    yield f"| queue | idle p50 / p99, ms | at 70 % p50 / p99, ms | PSS, MB | {' | '.join(titles)} |"
    yield "|---" * (4 + len(kinds)) + "|"
    for entry in entries:
        latencies = [_latencies(entry, read) for read in (_idle, _loaded)]
        costs = [_cost(entry, kind) for kind in kinds]
        yield f"| {_name(entry)} | {' | '.join([*latencies, _short(_median(entry, _pss_mb)), *costs])} |"


def _cost(entry: Entry, kind: Kind) -> str:
    own_us = 1e6 * CPU_S.get(kind, 0.0)
    found = [f.drained[kind] for f in entry.rounds if kind in f.drained]
    if not found:
        return NONE
    worker_us = statistics.median(each.worker_us for each in found) - own_us
    return f"{_short(worker_us)} + {_short(statistics.median(each.redis_us for each in found))}"


def _latencies(entry: Entry, read: Callable[[Figures], list[float]]) -> str:
    samples = [sample for figures in entry.rounds for sample in read(figures)]
    return f"{percentile(samples, 0.5):.2f} / {percentile(samples, 0.99):.2f}" if samples else NONE


def _ratios(entries: dict[str, Entry]) -> Iterator[str]:
    """Compare fastq's no-op rate with the ceiling, Go's, and the best of Python that promises as much."""
    mine = entries.get("fastq")
    if mine is None:
        return
    promising = [
        entry for entry in entries.values() if entry.guarantee == Guarantee.LEAST and entry.name not in PYTHONS_NOT
    ]
    best = max(promising, key=lambda entry: _median(entry, _noop), default=None)
    for other in (entries.get("bare"), entries.get("asynq"), best):
        if other is not None:
            yield f"- no-op tasks: fastq is {ratio(mine, other):.2f} x {other.title}"
    yield from _standing(mine, entries.values(), Kind.MS)
    yield f"- bulk enqueue: fastq {_number(_median(mine, _many))} a second"
    others = [entry for entry in entries.values() if entry.name not in NO_QUEUES and entry is not mine]
    others = [entry for entry in others if _samples(entry)]
    if _samples(mine) and others:
        soonest = min(others, key=_p50)
        theirs = f"{_p50(soonest):.2f} ms ({soonest.title})"
        yield f"- idle latency p50: fastq {_p50(mine):.2f} ms, the best other queue {theirs}"


def _standing(mine: Entry, entries: Iterable[Entry], kind: Kind) -> Iterator[str]:
    """Name whom fastq leads, or follows, among those that promise as much, and how near the BRPOP loop is."""
    read = _rate(kind)
    promising = [e for e in entries if e.guarantee == Guarantee.LEAST and e is not mine and _median(e, read)]
    if promising:
        best = max(promising, key=lambda entry: _median(entry, read))
        yield f"- {KINDS[kind]}: fastq is {_median(mine, read) / _median(best, read):.2f} x {best.title}"
    for entry in entries:
        if entry.name == "brpop":
            yield f"- {KINDS[kind]}: fastq is {_median(mine, read) / _median(entry, read):.2f} x {entry.title}"


def _samples(entry: Entry) -> list[float]:
    return [sample for figures in entry.rounds for sample in figures.latency_ms]


def _p50(entry: Entry) -> float:
    return percentile(_samples(entry), 0.5)


def _each(figures: Figures) -> float:
    return figures.each


def _many(figures: Figures) -> float:
    return figures.many


def _rate(kind: Kind) -> Callable[[Figures], float]:
    return lambda figures: figures.drained[kind].rate if kind in figures.drained else 0.0


def _noop(figures: Figures) -> float:
    return figures.drained[Kind.NOOP].rate


def _idle(figures: Figures) -> list[float]:
    return figures.latency_ms


def _loaded(figures: Figures) -> list[float]:
    return figures.loaded_ms


def _enqueue_redis_us(figures: Figures) -> float:
    return figures.each_redis_us


def _producer_us(figures: Figures) -> float:
    return figures.each_producer_us


def _pss_mb(figures: Figures) -> float:
    return figures.pss_mb


def _median(entry: Entry, read: Callable[[Figures], float]) -> float:
    return statistics.median(map(read, entry.rounds))


def _spread(entry: Entry, read: Callable[[Figures], float]) -> str:
    found = [read(figures) for figures in entry.rounds]
    if not any(found):
        return NONE
    return f"{_number(statistics.median(found))} ({_number(min(found))}-{_number(max(found))})"


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else _number(value)


def _name(entry: Entry) -> str:
    return f"**{entry.title}**" if entry.name == "fastq" else entry.title


def _settings(entry: Entry) -> str:
    return entry.settings + (f"; for tasks that wait {entry.settings_waiting}" if entry.settings_waiting else "")


def _promise(entry: Entry) -> str:
    return f"{entry.guarantee.capitalize()}: {entry.detail}"


def _where(record: Record) -> str:
    told = record.machine
    rounds = max((len(entry.rounds) for entry in record.entries), default=0)
    return (
        f"{rounds} interleaved rounds, {record.seconds / 60:.0f} min, {record.taken[:10]}, commit {told['commit']}; "
        f"{told['cores']} cores of {told['processor']}, Linux {told['kernel']}, Python {told['python']}, "
        f"Redis {told['redis']}, Go {told['go']}; load before {told['load']}"
    )
