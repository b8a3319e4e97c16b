"""gevent replaces names of the standard library, under gunicorn's --preload after the app has imported fastq."""

import subprocess
import sys

BOUND = """
import queue, select, socket, sys, threading, time
from fastq import App, AsyncClient, Client, Inspector, Semaphore
Client("redis://127.0.0.1:1").close(), Inspector("redis://127.0.0.1:1").close()
import fastq.broker.transport.cluster, fastq.broker.transport.sentinel, fastq.handles.blocking
replaced = {id(getattr(module, name)): name for module, names in (
    (threading, ("Thread", "Lock", "RLock", "Event", "Condition", "Timer", "local")),
    (queue, ("Queue", "SimpleQueue")), (socket, ("socket", "create_connection")),
    (select, ("select", "poll")), (time, ("sleep",))) for name in names}
for name, module in sorted(sys.modules.items()):
    if name.startswith("fastq."):
        print(*(f"{name}.{known}" for known, value in vars(module).items() if id(value) in replaced), end="")
"""


def test_what_clients_need_of_threads_is_looked_up_when_it_is_used() -> None:
    found = subprocess.run([sys.executable, "-c", BOUND], capture_output=True, text=True, check=True)
    assert found.stdout == ""
