"""The process that ``Server.start`` starts: ``python -m fastq.server.launch ANSWER_FD``.

Its options come as a line of JSON on stdin, so that no password appears in the list of processes. After that, stdin
stays open for as long as the starter lives; when it ends, the server shuts down. The answer is a line of JSON, too: an
empty object once the server serves, or an ``error`` with the reason why it cannot.
"""

import json
import os
import signal
import sys
import threading
from typing import Any

from fastq.errors import BrokerError, ServerStartError
from fastq.pool.main.protocol import PoolStartError
from fastq.server.base.config import ServerConfig
from fastq.server.base.timing import Timing
from fastq.server.run import exit_code_of, serve
from fastq.server.wiring.process import ProcessOptions


def options_from(order: dict[str, Any]) -> ProcessOptions:
    """Return the ``ProcessOptions`` that came as JSON, in which config and timing are objects."""
    given = {**order, "config": ServerConfig(**order["config"]), "timing": Timing(**order.get("timing", {}))}
    return ProcessOptions(**given)


def main() -> None:
    """Serve with the options from stdin until a signal comes or the starter ends."""
    answer_fd = int(sys.argv[1])
    os.set_inheritable(answer_fd, False)
    with os.fdopen(answer_fd, "w") as answer:
        order = json.loads(sys.stdin.readline())
        sys.path[:] = order.pop("sys_path")
        _end_with_starter()

        def say(**what: str) -> None:
            answer.write(json.dumps(what) + "\n")
            answer.flush()

        try:
            serve(options_from(order), on_ready=say)
        except (PoolStartError, BrokerError, ServerStartError) as error:
            say(error=str(error))
            sys.exit(exit_code_of(error))


def _end_with_starter() -> None:
    """Shut down once stdin ends; child processes get an empty stdin."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def watch() -> None:
        while os.read(lifeline, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="fastq starter", daemon=True).start()


if __name__ == "__main__":
    main()
