"""The ledger, written through a mux as a worker's children do."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from fastq import RevokeTask, ServeMux, TaskTimeout
from fastq.checkpoint import Unserved
from fastq.demo.ledger import Ending, LedgerTail, LedgerWriter, read_ledger
from fastq.running import RunningTask
from fastq.wire.codec import TaskMessage

ID = str(UUID(int=1))
OTHER = str(UUID(int=2))


class Context(Unserved):
    started_ns = deadline_ns = 0

    def write_result(self, data: bytes, is_soon: bool = False) -> None:
        raise AssertionError

    write_progress = write_result


def run(path: Path, handler: Callable[[RunningTask], object], task_id: str = ID, retried: int = 0) -> object:
    mux = ServeMux()
    mux.use(LedgerWriter(str(path)).middleware)
    mux.handle("t", handler)
    return mux(RunningTask(TaskMessage("t", id=task_id, retried=retried), Context()))


def raises(error: BaseException) -> Callable[[RunningTask], object]:
    def handler(task: RunningTask) -> object:
        raise error

    return handler


def endings(path: Path) -> dict[str, list[tuple[int, Ending | None]]]:
    return {task_id: [(run.retried, run.ending) for run in runs] for task_id, runs in read_ledger(path).items()}


def test_nothing_has_run_where_there_is_no_file(tmp_path: Path) -> None:
    assert read_ledger(tmp_path / "none") == {}


def test_a_run_that_returns_has_a_beginning_before_its_end(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert run(path, lambda task: 5) == 5
    [[found]] = read_ledger(path).values()
    assert (found.retried, found.ending) == (0, Ending.RETURNED)
    assert 0 < found.begun_ns <= found.ended_ns


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ValueError(), Ending.RAISED),
        (TaskTimeout(), Ending.RAISED),
        (SystemExit(), Ending.RAISED),
        (RevokeTask(), Ending.REVOKED),
    ],
)
def test_what_a_handler_raises_is_written_down_and_passed_on(
    tmp_path: Path, error: BaseException, ending: Ending
) -> None:
    with pytest.raises(type(error)):
        run(tmp_path / "ledger", raises(error))
    assert endings(tmp_path / "ledger") == {ID: [(0, ending)]}


def test_runs_of_several_tasks_by_several_writers_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "ledger"

    def nested(task: RunningTask) -> object:
        return run(path, lambda task: None, OTHER)

    with pytest.raises(ValueError, match="x"):
        run(path, raises(ValueError("x")))
    run(path, nested, ID, 1)
    assert endings(path) == {
        ID: [(0, Ending.RAISED), (1, Ending.RETURNED)],
        OTHER: [(0, Ending.RETURNED)],
    }


def test_a_run_whose_process_died_has_no_ending(tmp_path: Path) -> None:
    path = tmp_path / "ledger"

    def look(task: RunningTask) -> object:
        return endings(path)

    assert run(path, look) == {ID: [(0, None)]}


@pytest.mark.parametrize("cut", [0, 1])
def test_a_damaged_ledger_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "ledger"
    run(path, lambda task: None)
    data = path.read_bytes()
    path.write_bytes(data[:-1] if cut else data[len(data) // 2 :])
    with pytest.raises(ValueError, match="not a multiple" if cut else "an end without a beginning"):
        read_ledger(path)


def test_the_tail_names_a_task_once_it_has_begun(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    tail = LedgerTail(path)
    assert not tail.names(ID)
    run(path, lambda task: None, OTHER)
    assert not tail.names(ID)
    run(path, lambda task: None)
    assert tail.names(ID)
