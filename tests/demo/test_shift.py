"""The shift, watched without a worker: what it does when nothing moves, and when its cancellation is not heard."""

from pathlib import Path

import pytest
from redis import Redis

from fastq import Client
from fastq.broker.transport.open import open_broker
from fastq.demo.books import Books
from fastq.demo.findings import read_counts
from fastq.demo.shift import Shift, StalledError
from fastq.demo.worker import Worker
from fastq.demo.workload import WEIGHTS, Workload
from fastq.terminal.interruption import Interrupted, Interruption
from fastq.terminal.screen import Screen
from tests.demo.test_ledger import run
from tests.waiting import PATIENCE_S


class Scene:
    """A shift about to begin: a thousand tasks are enqueued, and no server works on them."""

    def __init__(self, url: str, directory: Path, interruption: Interruption, patience_s: float) -> None:
        self.broker = open_broker(url)
        self.client = Client(url)
        self.before = read_counts(self.broker, list(WEIGHTS))
        self.books = Books()
        self.workload = Workload(1_000, 1, list(WEIGHTS))
        for _ in self.books.enqueue(self.client, self.workload.first_wave()):
            pass
        worker = Worker(WEIGHTS, 2, url, directory)
        self.shift = Shift(self.broker, worker, self.books, Screen(), interruption, patience_s)

    def play(self) -> None:
        self.shift.work_off(self.workload, self.client, WEIGHTS, self.before)


def test_patience_ends_when_nothing_moves(url: str, tmp_path: Path) -> None:
    scene = Scene(url, tmp_path, Interruption(), 0.25)
    (tmp_path / "worker.log").write_text("the last words\n")
    with pytest.raises(StalledError, match=r"no progress for 0.25 s; 980 tasks are left\n  the last words"):
        scene.play()


class Steps(Interruption):
    """Do a step instead of each wait, and end with the last."""

    def __init__(self, db: Redis, ledger: Path) -> None:
        super().__init__()
        self.stuck = ""
        self.heard: list[object] = []
        self._hearing = db.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]  # redis-py's
        self._ledger = ledger
        self._waits = 0

    def wait(self, seconds: float) -> None:
        self._waits += 1
        if self._waits == 2:
            run(self._ledger, lambda task: None, self.stuck)
        elif self._waits == 4:
            self._hearing.subscribe("asynq:cancel")
            self._hearing.get_message(timeout=PATIENCE_S)
        elif self._waits == 6:
            wait_s = PATIENCE_S
            while message := self._hearing.get_message(timeout=wait_s):
                self.heard.append(message["data"])
                wait_s = 0.2  # for one too many
            self._hearing.close()
            raise Interrupted(2)


def test_the_stuck_task_is_cancelled_once_it_has_begun_and_somebody_hears(url: str, db: Redis, tmp_path: Path) -> None:
    steps = Steps(db, tmp_path / "ledger")
    scene = Scene(url, tmp_path, steps, 60.0)
    steps.stuck = scene.books.the("stuck")
    with pytest.raises(Interrupted):
        scene.play()
    assert steps.heard == [steps.stuck.encode()]
