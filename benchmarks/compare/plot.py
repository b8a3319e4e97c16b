"""Draws a run's JSON as a PNG: ``python plot.py figures.json plot.png``, with matplotlib and nothing of fastq.

The ground is transparent and the ink is grey enough for pages of either colour.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import matplotlib  # type: ignore[import-not-found]  # in an environment of its own

matplotlib.use("agg")
from matplotlib import pyplot

INK = "#7d8590"
OURS = "#e8793a"
COLOURS = {"at least once": "#3b82c4", "at most once": "#9aa7b4"}


def main(figures: str, target: str) -> None:
    """Draw the no-op rates, and beside them what they cost and how soon a task begins."""
    with open(figures) as file:
        record = json.load(file)
    entries = [entry for entry in record["entries"] if entry["rounds"]]
    entries.sort(key=lambda entry: rate(entry, "noop"))
    pyplot.rcParams.update(
        {
            **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
            "font.size": 9,
            "axes.titlesize": 9.5,
            "axes.titlelocation": "left",
        }
    )
    size = (10.5, 0.8 + 0.32 * len(entries))
    figure, axes = pyplot.subplots(1, 4, figsize=size, width_ratios=(3, 1.5, 1.5, 1.5), layout="constrained")
    draw_rates(axes[0], entries)
    draw_bars(axes[1], entries, [rate(entry, "ms") for entry in entries], "1 ms CPU tasks/s")
    draw_bars(axes[2], entries, [latency(entry) for entry in entries], "idle latency, ms", log=True)
    draw_bars(axes[3], entries, [cpu_us(entry) for entry in entries], "CPU a no-op, µs", log=True)
    meaning = {"fastq, at least once": OURS, **COLOURS}
    patches = [pyplot.Rectangle((0, 0), 1, 1, color=shade) for shade in meaning.values()]
    title = "A task whose worker dies runs"
    figure.legend(patches, meaning, loc="outside lower center", ncols=3, frameon=False, labelcolor=INK, title=title)
    figure.savefig(target, dpi=160, transparent=True)


def rate(entry: Any, kind: str) -> float:
    """Return the median of the rates of a kind over an entry's rounds; zero if it was not measured."""
    found: list[float] = [figures["drained"].get(kind, {"rate": 0.0})["rate"] for figures in entry["rounds"]]
    return statistics.median(found)


def cpu_us(entry: Any) -> float:
    """Return the CPU of a no-op task, the workers' and Redis'."""
    found = [figures["drained"]["noop"] for figures in entry["rounds"]]
    used: list[float] = [each["worker_us"] + each["redis_us"] for each in found]
    return statistics.median(used)


def latency(entry: Any) -> float:
    """Return the median of all latencies, or zero if there are none."""
    samples = [sample for figures in entry["rounds"] for sample in figures["latency_ms"]]
    return statistics.median(samples) if samples else 0.0


def colour(entry: Any) -> str:
    """Return a colour by the guarantee; fastq has one of its own."""
    return OURS if entry["name"] == "fastq" else COLOURS[entry["guarantee"]]


def draw_rates(axes: Any, entries: Sequence[Any]) -> None:
    """Draw the no-op rates, with their range and the names."""
    values = [rate(entry, "noop") for entry in entries]
    ranges = [[figures["drained"]["noop"]["rate"] for figures in entry["rounds"]] for entry in entries]
    draw_bars(axes, entries, values, "no-op tasks a second", log=True, ends=list(map(max, ranges)))
    below = [value - min(found) for value, found in zip(values, ranges, strict=True)]
    above = [max(found) - value for value, found in zip(values, ranges, strict=True)]
    axes.errorbar(values, range(len(entries)), xerr=(below, above), fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    axes.set_yticks(range(len(entries)), [f"{entry['title']} {entry['version']}" for entry in entries])


def draw_bars(
    axes: Any,
    entries: Sequence[Any],
    values: Sequence[float],
    title: str,
    log: bool = False,
    ends: Sequence[float] = (),
) -> None:
    """Draw one bar for each, its number behind its end, or where ``ends`` has it."""
    if not any(values):
        axes.set_axis_off()
        return
    axes.barh(range(len(entries)), values, color=[colour(entry) for entry in entries], height=0.7)
    if log:
        axes.set_xscale("log")
        axes.set_xlim(min(value for value in values if value) / 2, max(values) * 4)
    else:
        axes.set_xlim(0, max(values) * 1.4)
    for at, (value, end) in enumerate(zip(values, ends or values, strict=True)):
        axes.annotate(number(value), (end, at), xytext=(5, 0), textcoords="offset points", va="center")
    axes.set_title(f"{title} (log)" if log else title, color=INK)
    axes.set_yticks(range(len(entries)), [""] * len(entries))
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_visible(False)
    axes.set_ylim(-0.6, len(entries) - 0.4)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def number(value: float) -> str:
    """Return three digits, or as many as there are before the point; nothing for what was not measured."""
    if not value:
        return ""
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{decimals}f}".replace(",", "\N{THIN SPACE}")


if __name__ == "__main__":
    main(*sys.argv[1:])
