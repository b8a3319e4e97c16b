"""The queries of asynqmon's page of metrics, sent to a Prometheus server."""

import asyncio
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

__all__ = ["metrics"]

LIMIT_S: Final = 10.0
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
POINTS: Final = 3000
_STEPS: Final = ((6 * HOUR_S, 10), (DAY_S, 60), (8 * DAY_S, 180), (30 * DAY_S, 600))
_QUERIES: Final = {
    "queue_size": "asynq_queue_size{%s}",
    "queue_latency_seconds": "asynq_queue_latency_seconds{%s}",
    "queue_memory_usage_approx_bytes": "asynq_queue_memory_usage_approx_bytes{%s}",
    "tasks_processed_per_second": "rate(asynq_tasks_processed_total{%s}[5m])",
    "tasks_failed_per_second": "rate(asynq_tasks_failed_total{%s}[5m])",
    "error_rate": "rate(asynq_tasks_failed_total{%s}[5m]) / rate(asynq_tasks_processed_total{%s}[5m])",
    "pending_tasks_by_queue": 'asynq_tasks_enqueued_total{state="pending",%s}',
    "retry_tasks_by_queue": 'asynq_tasks_enqueued_total{state="retry",%s}',
    "archived_tasks_by_queue": 'asynq_tasks_enqueued_total{state="archived",%s}',
}


async def metrics(server: str, asked: Mapping[str, str]) -> bytes:
    """Return Prometheus' replies as one JSON object; ``ValueError`` names a bad parameter, ``OSError`` its failure."""
    duration_s = _whole(asked, "duration", HOUR_S)
    end_s = _whole(asked, "endtime", int(time.time()))
    if not server.startswith(("http://", "https://")):
        raise OSError("no server is configured (--prometheus-addr)")
    step_s = next((step for longest, step in _STEPS if duration_s <= longest), duration_s // POINTS)
    span = {"start": end_s - duration_s, "end": end_s, "step": step_s}
    queues = _filter(asked.get("queues", ""))
    urls = [
        f"{server.rstrip('/')}/api/v1/query_range?{urlencode({'query': query.replace('%s', queues), **span})}"
        for query in _QUERIES.values()
    ]
    replies = await asyncio.gather(*(asyncio.to_thread(_get, url) for url in urls))
    return (
        b"{" + b",".join(b'"%b":%b' % (name.encode(), got) for name, got in zip(_QUERIES, replies, strict=True)) + b"}"
    )


def _whole(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"invalid value provided for {name}: {text!r}") from None


def _filter(queues: str) -> str:
    """Write the selector of queues, which asynqmon does without escaping their names."""
    if not queues:
        return ""
    names = "|".join(re.escape(queue) for queue in queues.split(","))
    quoted = names.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'queue=~"{quoted}"'


def _get(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as reply:
            body: bytes = reply.read()
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()  # its JSON says what is wrong
    return body
