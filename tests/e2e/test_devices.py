"""``--devices``: each child has its device before the app's own code in it runs, and the log tells who shares one."""

import pytest

from fastq import Client
from tests.e2e.harness import Workers

APP = """
import os
from fastq import ServeMux

mux = ServeMux()

@mux.child_start
def start():
    # In one write: two children share the output, and print would write word by word.
    os.write(1, f"started with {os.environ.get('CUDA_VISIBLE_DEVICES')}\\n".encode())

@mux.handler("where")
def where(task):
    print("ran with", os.environ["HIP_VISIBLE_DEVICES"], "and", task.device)
"""

TOUCHING = """
import sys
import types
torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)
sys.modules["torch"] = torch
"""


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_auto_gives_the_devices_of_the_environment(workers: Workers, client: Client, start_method: str) -> None:
    (workers.directory / "devices.py").write_text(APP)
    flags = "--devices", "auto", "--start-method", start_method
    worker = workers.start(*flags, app="devices:mux", env={"CUDA_VISIBLE_DEVICES": "7,9"}).is_ready()
    assert "devices: 7 (1 child), 9 (1 child)" in worker.text
    assert "ready: 2 children" in worker.text
    for device in ("7", "9"):
        assert f"started with {device}" in worker.text
    client.enqueue("where")
    worker.wait_for("ran with")
    assert "ran with 7 and 7" in worker.text or "ran with 9 and 9" in worker.text
    assert worker.stop() == 0


def test_an_app_that_begins_with_a_device_at_its_import_is_refused(workers: Workers) -> None:
    (workers.directory / "devices.py").write_text(APP + TOUCHING)
    worker = workers.start("--devices", "0", app="devices:mux")
    assert worker.ended() == 2, worker.text
    assert "fastq-worker: CUDA is initialized in torch after the import of the app" in worker.text


def test_a_machine_without_a_gpu_has_none_to_give(workers: Workers) -> None:
    worker = workers.start("--devices", "auto", env={"CUDA_VISIBLE_DEVICES": ""})
    assert worker.ended() == 2, worker.text
    assert "devices: auto finds no GPU" in worker.text
