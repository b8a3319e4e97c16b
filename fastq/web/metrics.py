"""``/metrics``, which Prometheus scrapes; users get the metrics of the queues that they may see."""

import asyncio
from typing import Final

from starlette.responses import Response

from fastq.web.site import Call, Refusal, Route

LIMIT_S: Final = 9.5
"""The time for a scrape; Prometheus waits for 10 s by default."""


async def metrics(call: Call) -> Response:
    """Return the metrics of the queues that the user sees."""
    exporter = call.site.exporter
    if exporter is None:
        raise Refusal(404, "metrics are not served; fastq web --enable-metrics-exporter serves them")
    try:
        async with asyncio.timeout(LIMIT_S):
            text, kind = await exporter.text(call.request.headers.get("accept", ""), call.view)
    except TimeoutError:
        raise Refusal(503, f"the metrics could not be read within {LIMIT_S:g} s") from None
    return Response(text, headers={"content-type": kind})


METRICS: Final = [Route("GET", "/metrics", metrics)]
"""The path of asynqmon's exporter."""
