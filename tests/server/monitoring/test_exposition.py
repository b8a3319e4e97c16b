"""The two text formats, read back by prometheus_client."""

import asyncio
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from fastq.server.inflight.tally import Histogram, Tally
from fastq.server.monitoring.exposition import Family, Format, labels, render
from fastq.server.monitoring.listener import in_stretches

READ: Any = {Format.PROMETHEUS: read_prometheus, Format.OPENMETRICS: read_openmetrics}
ODD = 'a"b\\c\nd{}é,='


def some_families() -> Iterator[Family]:
    histogram = Histogram((0.5, 1.0))
    for value in (0.1, 0.7, 0.8, 3.0):
        histogram.observe(value)
    yield Family("a_tasks", "counter", "Tasks.", [(labels(queue="q", type=ODD), 3), (labels(queue="r", type=""), 0)])
    yield Family("a_free", "gauge", "Room.", [("", 1.5)])
    yield Family("a_seconds", "histogram", "Times.", [(labels(queue="q"), histogram), ("", Histogram((1.0,)))])
    yield Family("a_nothing", "counter", "Never was.", [])


def samples_of(text: str, format: Format) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parsed: Iterable[Any] = READ[format](text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parsed
        for sample in family.samples
    }


@pytest.mark.parametrize("format", Format)
def test_every_sample_is_read_back(format: Format) -> None:
    text = "".join(render(some_families(), format))
    assert samples_of(text, format) == {
        ("a_tasks_total", (("queue", "q"), ("type", ODD))): 3,
        ("a_tasks_total", (("queue", "r"), ("type", ""))): 0,
        ("a_free", ()): 1.5,
        ("a_seconds_bucket", (("le", "0.5"), ("queue", "q"))): 1,
        ("a_seconds_bucket", (("le", "1.0"), ("queue", "q"))): 3,
        ("a_seconds_bucket", (("le", "+Inf"), ("queue", "q"))): 4,
        ("a_seconds_sum", (("queue", "q"),)): pytest.approx(4.6),
        ("a_seconds_count", (("queue", "q"),)): 4,
        ("a_seconds_bucket", (("le", "1.0"),)): 0,
        ("a_seconds_bucket", (("le", "+Inf"),)): 0,
        ("a_seconds_sum", ()): 0,
        ("a_seconds_count", ()): 0,
    }
    assert "nothing" not in text
    assert text.count("# TYPE") == text.count("# HELP") == 3
    assert text.endswith("# EOF\n") is (format is Format.OPENMETRICS)


def test_infinity_is_written_as_go_reads_it() -> None:
    assert "a_free +Inf\n" in "".join(render([Family("a_free", "gauge", "Room.", [("", inf)])], Format.PROMETHEUS))


def test_a_long_answer_leaves_the_loop_turns() -> None:
    tallies = [Tally(f"queue-{queue}", f"type-{type}") for queue in range(10) for type in range(200)]
    family = Family(
        "a_seconds", "histogram", "Times.", [(labels(queue=one.queue, type=one.type), one.run_s) for one in tallies]
    )

    async def test() -> None:
        turns = 0
        is_over = False

        async def other_work() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await asyncio.sleep(0)

        working = asyncio.create_task(other_work())
        await asyncio.sleep(0)
        parts = await in_stretches(render([family], Format.PROMETHEUS))
        is_over = True
        await working
        text = b"".join(parts).decode()
        assert text == "".join(render([family], Format.PROMETHEUS))
        assert text.count("\n") == 2 + 2000 * 21
        assert turns >= len(parts) > 3

    asyncio.run(test())
