"""Run a server whose fixed times are shorter: ``python -m tests.e2e.serve ORDER``, the order as `launch` takes it."""

import json
import sys

from fastq.server.launch import options_from
from fastq.server.run import run_server

if __name__ == "__main__":
    sys.exit(run_server(options_from(json.loads(sys.argv[1]))))
