"""What the preloader says of an import: what children must not share, and no word of what they may."""

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = "from fastq.pool.preloader.fork_safety import findings, open_descriptors\nbefore = open_descriptors()\n"
END = "\nprint('\\n'.join(findings(before)))"

HARMLESS = {
    "nothing": "import json",
    "a log file": "import logging; logging.basicConfig(filename='app.log'); logging.warning('begun')",
    "a file": "file = open('data', 'w'); file.write('begun')",
    "datagrams": "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.connect(('127.0.0.1', 9))",
    "a socket that waits": "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()",
    "a pair of sockets": "import socket; pair = socket.socketpair()",
    "a closed connection": "import socket; s = socket.create_server(('127.0.0.1', 0)); "
    "socket.create_connection(s.getsockname()).close()",
    "a closed database": "import sqlite3; db = sqlite3.connect('app.db'); db.execute('create table t (a)'); db.close()",
    "a loop that has ended": "import asyncio; asyncio.run(asyncio.sleep(0))",
    "a thread that has ended": "import threading; t = threading.Thread(target=int); t.start(); t.join()",
    "a thread that ends before a fork": """
import os, threading
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
os.register_at_fork(before=lambda: (stop.set(), thread.join()))
""",
}
HARMFUL = {
    "a connection": (
        "import socket; l = socket.create_server(('127.0.0.1', 0)); s = socket.create_connection(l.getsockname()); "
        "print(l.getsockname()[1])",
        "its import leaves a connection to 127.0.0.1:{} open",
    ),
    "a connection to a path": (
        "import socket; l = socket.socket(socket.AF_UNIX); l.bind('db.sock'); l.listen(); "
        "s = socket.socket(socket.AF_UNIX); s.connect('db.sock'); print('db.sock')",
        "its import leaves a connection to {} open",
    ),
    "a database": (
        "import os, sqlite3; db = sqlite3.connect('app.db'); db.execute('create table t (a)'); "
        "print(os.path.realpath('app.db'))",
        "its import leaves the SQLite database {} open",
    ),
    "a loop": ("import asyncio; loop = asyncio.new_event_loop(); print('epoll')", "an event loop ({}) open"),
    "threads": (
        "import threading\nfor name in 'ab': threading.Thread(target=threading.Event().wait, name=name, daemon=True)"
        '.start()\nprint(\'"a", "b"\')',
        "its import started the threads {}, which forked children do not have",
    ),
}


def said_of(app: str, directory: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{BEGIN}{app}{END}"], cwd=directory, capture_output=True, text=True, check=True
    )
    return [line for line in done.stdout.split("\n") if line]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells all this")
@pytest.mark.parametrize("app", HARMLESS)
def test_what_children_may_share_is_passed_over(app: str, tmp_path: Path) -> None:
    assert said_of(HARMLESS[app], tmp_path) == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells all this")
@pytest.mark.parametrize("app", HARMFUL)
def test_what_children_must_not_share_is_named_with_the_remedy(app: str, tmp_path: Path) -> None:
    code, says = HARMFUL[app]
    name, *lines = said_of(code, tmp_path)
    (line,) = lines
    assert says.format(name) in line
    assert "@mux.child_start" in line
    assert "--start-method spawn" in line
