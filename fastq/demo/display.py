"""The demo's progress: on a terminal a block with a bar, the rate and the queues' shares, else a line now and then."""

import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from fastq.demo.findings import QueueCounts
from fastq.terminal.screen import Screen, grouped

_WINDOW_S: Final = 3.0
_LINE_EVERY_S: Final = 3.0
_BAR: Final = 40
_COLOURS: Final = ("red", "yellow", "blue")


class Display:
    """The display of the demo's progress; rate and shares are measured over the last three seconds.

    ``before`` has the counts before the first task.
    """

    def __init__(
        self, screen: Screen, tasks: int, weights: Mapping[str, int], before: Mapping[str, QueueCounts]
    ) -> None:
        self._screen = screen
        self._tasks = tasks
        self._weights = weights
        self._start_s = time.monotonic()
        self._next_line_s = self._start_s + _LINE_EVERY_S
        self._past = deque([(self._start_s, _processed(before))])

    def show(self, counts: Mapping[str, QueueCounts], enqueued: int, *, last: bool = False) -> None:
        """Show the counts, given the number of enqueued tasks; ``last`` shows them even if no line is due."""
        now_s = time.monotonic()
        self._past.append((now_s, _processed(counts)))
        while now_s - self._past[0][0] > _WINDOW_S:
            self._past.popleft()
        done = enqueued - sum(count.unfinished for count in counts.values())
        if self._screen.is_live:
            self._screen.show(self._block(counts, done, now_s))
        elif last or now_s >= self._next_line_s:
            self._next_line_s = now_s + _LINE_EVERY_S
            self._screen.say(self._line(counts, done, now_s))

    def _rates(self) -> dict[str, float]:
        (then_s, then), (now_s, now) = self._past[0], self._past[-1]
        seconds = max(1.0, now_s - then_s)
        return {queue: (now[queue] - then[queue]) / seconds for queue in now}

    def _line(self, counts: Mapping[str, QueueCounts], done: int, now_s: float) -> str:
        rates = self._rates()
        shares = "  ".join(f"{queue} {share:.0%}" for queue, share in _shares(rates).items())
        percent = 100 * done // self._tasks
        head = f"{now_s - self._start_s:5.0f} s  {grouped(done):>8} of {grouped(self._tasks)}  {percent:3}%"
        return f"{head}  {grouped(sum(rates.values())):>7}/s   {shares}   {_waiting(counts)}"

    def _block(self, counts: Mapping[str, QueueCounts], done: int, now_s: float) -> list[str]:
        paint = self._screen.paint
        rates = self._rates()
        bar = paint(self._bar(done / self._tasks, _BAR), fg="green")
        width = max(map(len, counts))
        lines = [
            f"  {bar} {100 * done // self._tasks:3}%   {grouped(done)} of {grouped(self._tasks)}   "
            + paint(f"{grouped(sum(rates.values()))}/s", bold=True)
            + f"   {now_s - self._start_s:.0f} s"
        ]
        for (queue, share), colour in zip(_shares(rates).items(), _COLOURS, strict=True):
            part = paint(f"{self._bar(share, _BAR // 2)} {share:4.0%}", fg=colour)
            waiting = f"{grouped(counts[queue].pending):>8} waiting"
            lines.append(f"  {queue:<{width}}  weight {self._weights[queue]}  {part} {waiting}")
        return [*lines, paint(f"  {_waiting(counts)}", dim=True)]

    def _bar(self, part: float, width: int) -> str:
        full = round(max(0.0, min(1.0, part)) * width)
        filled, empty = "█░" if self._screen.can_draw else "#-"
        return filled * full + empty * (width - full)


def _processed(counts: Mapping[str, QueueCounts]) -> dict[str, int]:
    return {queue: count.processed for queue, count in counts.items()}


def _shares(rates: Mapping[str, float]) -> dict[str, float]:
    total = sum(rates.values()) or 1.0
    return {queue: rate / total for queue, rate in rates.items()}


def _waiting(counts: Mapping[str, QueueCounts]) -> str:
    every = counts.values()
    return (
        f"{sum(count.scheduled for count in every)} scheduled, {sum(count.retry for count in every)} in retry, "
        f"{sum(count.archived for count in every)} archived"
    )
