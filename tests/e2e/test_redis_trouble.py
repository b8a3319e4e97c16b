"""Redis in every kind of trouble under a real worker: handlers run on, outcomes are written once, it is said once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Worker
from tests.e2e.troubled import BEGIN, END, TROUBLES, Stage, on_stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with on_stage(tmp_path) as stage:
        yield stage


def said(worker: Worker, text: str) -> list[str]:
    return [line for line in worker.lines if text in line]


def check_end(stage: Stage, worker: Worker, *task_ids: str) -> None:
    """See that tasks were done, each in one run that counted, and that the worker goes on."""
    for task_id in task_ids:
        message = stage.view.until("completed", task_id)
        assert message is not None
        assert message.retried == 0
    stage.view.until("completed", stage.enqueue("ok"))
    assert (stage.view.count("processed"), stage.view.count("failed")) == (len(task_ids) + 1, 0)
    assert (stage.view.size("active"), stage.view.size("lease"), stage.view.size("pending")) == (0, 0, 0)
    assert worker.stop() == 0, worker.text
    assert "Traceback" not in worker.text


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_handler_that_ends_in_the_trouble_is_done_once_and_the_trouble_is_said_once(
    trouble: str, stage: Stage
) -> None:
    worker = stage.workers.start("--concurrency", "2").is_ready()
    task_id = stage.enqueue("until-file", headers={"file": str(stage.server.directory / "go")})
    stage.view.expect("started", task_id)
    with TROUBLES[trouble](stage):
        worker.wait_for(BEGIN)
        (stage.server.directory / "go").touch()
        if trouble != "full":
            worker.wait_for("cannot save the outcomes of 1 tasks yet")
    worker.wait_for(END)
    check_end(stage, worker, task_id)
    # A second kind of it may be met on the way: a time-out where the machine is busy, before or after a refusal.
    assert len(said(worker, BEGIN)) in (1, 2), worker.text
    assert len(said(worker, END)) == 1, worker.text
