"""A run's figures as Markdown: medians with their range, costs, how each contender was set up, and fastq's ratios."""

import statistics
from collections.abc import Callable, Iterator, Sequence

from benchmarks.compare.contender import Guarantee
from benchmarks.compare.record import Entry, Record
from benchmarks.compare.turn import Figures

__all__ = ["markdown", "percentile", "ratio"]

NONE = "-"
NO_QUEUES = ("bare", "brpop")
PYTHONS_NOT = ("bare", "fastq", "asynq")


def markdown(record: Record) -> str:
    """Return both tables, the ratios, and the notes."""
    entries = [entry for entry in record.entries if entry.rounds]
    parts = [
        "Tasks per second: median (range)\n",
        *_rates(entries),
        "\nMedians: from the call of enqueue to the handler's first line on an idle worker (samples of all rounds), "
        "CPU per task, memory of all worker processes\n",
        *_costs(entries),
        "",
        *_ratios({entry.name: entry for entry in entries}),
        "",
        *(f"- {entry.title} {entry.version}: {entry.settings}. {_promise(entry)}." for entry in entries),
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
    return statistics.median(a.noop / b.noop for a, b in zip(mine.rounds, other.rounds, strict=False))


def _rates(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| queue | a task of a dead worker runs | enqueue one by one | in bulk | no-op tasks | 1 ms CPU tasks |"
    yield "|---|---|---|---|---|---|"
    for entry in entries:
        cells = [_spread(entry, read) for read in (_each, _many, _noop, _ms)]
        yield f"| {_name(entry)} | {entry.guarantee} | {' | '.join(cells)} |"


def _costs(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| queue | latency p50 / p99, ms | no-op: worker, µs | no-op: Redis, µs | enqueue: producer, µs | PSS, MB |"
    yield "|---|---|---|---|---|---|"
    for entry in entries:
        samples = _samples(entry)
        latency = f"{percentile(samples, 0.5):.2f} / {percentile(samples, 0.99):.2f}" if samples else NONE
        costs = [_median(entry, read) for read in (_worker_us, _redis_us, _producer_us, _pss_mb)]
        yield f"| {_name(entry)} | {latency} | {' | '.join(map(_short, costs))} |"


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
    yield f"- bulk enqueue: fastq {_number(_median(mine, _many))} a second"
    others = [entry for entry in entries.values() if entry.name not in NO_QUEUES and entry is not mine]
    others = [entry for entry in others if _samples(entry)]
    if _samples(mine) and others:
        soonest = min(others, key=_p50)
        theirs = f"{_p50(soonest):.2f} ms ({soonest.title})"
        yield f"- idle latency p50: fastq {_p50(mine):.2f} ms, the best other queue {theirs}"


def _samples(entry: Entry) -> list[float]:
    return [sample for figures in entry.rounds for sample in figures.latency_ms]


def _p50(entry: Entry) -> float:
    return percentile(_samples(entry), 0.5)


def _each(figures: Figures) -> float:
    return figures.each


def _many(figures: Figures) -> float:
    return figures.many


def _noop(figures: Figures) -> float:
    return figures.noop


def _ms(figures: Figures) -> float:
    return figures.ms


def _worker_us(figures: Figures) -> float:
    return figures.noop_worker_us


def _redis_us(figures: Figures) -> float:
    return figures.noop_redis_us


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
