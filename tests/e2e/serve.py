"""Run a server whose fixed times are others: ``python -m tests.e2e.serve ORDER``, the order as `launch` takes it.

``report_wait_s`` beside it is for how long the preloader is waited for to say how a child died.
"""

import json
import sys
from typing import Any

from fastq.pool.main import supervisor
from fastq.server.launch import options_from
from fastq.server.run import run_server


def main(order: dict[str, Any]) -> int:
    supervisor._REPORT_WAIT_S = order.pop("report_wait_s", supervisor._REPORT_WAIT_S)
    return run_server(options_from(order))


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
