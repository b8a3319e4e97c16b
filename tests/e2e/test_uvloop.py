"""A worker on uvloop, where it is installed: what depends on the event loop, once more.

``pytest -p tests.on_uvloop tests/e2e`` runs all on it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastq import Client
from tests.e2e.harness import Workers, workers_on
from tests.e2e.test_reload import (  # noqa: F401
    test_a_terminal_that_is_closed_shuts_down,
    test_as_pid_1_it_reaps_orphans,
    test_sighup_replaces_the_code_while_running_tasks_finish,
    test_sigquit_skips_the_waiting,
)
from tests.e2e.test_signals import (  # noqa: F401
    test_a_running_task_is_finished_and_waiting_ones_are_given_back_in_order,
    test_a_second_signal_skips_the_waiting,
    test_ctrl_c_in_a_terminal_leaves_nothing,
    test_sigtstp_stops_fetching_and_nothing_else,
)
from tests.e2e.view import View

pytest.importorskip("uvloop")
NOT_THERE = "import sys; sys.modules['uvloop'] = None; from fastq.cli.worker import main; main()"
WITHOUT = (sys.executable, "-c", NOT_THERE)


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Iterator[Workers]:
    with workers_on(url, tmp_path, "uvloop") as workers:
        yield workers


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_the_first_line_names_uvloop_where_it_is_taken(workers: Workers, client: Client, view: View, loop: str) -> None:
    task = client.enqueue("ok", retention=600)
    worker = workers.start("--loop", loop, "--concurrency", "1", "--burst")
    assert worker.ended() == 0, worker.text
    assert view.ids("completed") == [task.id]
    assert ("with uvloop serves" in worker.text) == (loop != "asyncio")


def test_without_uvloop_a_worker_that_is_told_to_take_it_says_what_to_install(workers: Workers) -> None:
    refused = workers.start("--concurrency", "1", "--burst", program=WITHOUT)
    assert refused.ended() == 1
    assert "uvloop cannot be imported" in refused.text
    assert "pip install 'fastq-worker[uvloop]'" in refused.text
