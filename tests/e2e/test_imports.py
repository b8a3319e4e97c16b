"""What the main process of a worker imports: who adds to it makes every worker larger, and slower to start."""

import subprocess
import sys

from fastq import Client
from tests.e2e.harness import Workers

FOLDERS = """
    fastq fastq.broker fastq.broker.operations fastq.broker.transport fastq.cli fastq.common fastq.log fastq.pool
    fastq.pool.main fastq.pool.shared fastq.server fastq.server.actors fastq.server.base fastq.server.children
    fastq.server.inflight fastq.server.monitoring fastq.server.wiring fastq.wire fastq.wire.proto fastq.worker
    fastq.worker.shared
"""
"""Our folders: the others are of producers, children, inspectors and the other commands."""
IN_THE_ROOT = """
    _codec _muxmatch _prioritizer _version batch checkpoint errors mux options redis_url running task
"""
OF_OTHERS = "click google hiredis orjson redis"
AT_SITE = ("_distutils_hack", "__editable__", "_cython_", "cython_runtime", "_virtualenv")
"""What a virtual environment, an editable install and compiled modules bring by themselves."""


def folder_of(module: str, modules: set[str]) -> str:
    """Return the folder of one of our modules; the module itself where it is a folder, or lies in the root."""
    parent = module.rpartition(".")[0]
    is_folder = any(other.startswith(f"{module}.") for other in modules)
    return module if is_folder or parent == "fastq" else parent


def test_the_main_process_imports_what_is_listed_and_no_more(workers: Workers, client: Client) -> None:
    client.enqueue("ok", retention=600)
    code = "import atexit, sys; from fastq.cli.worker import main;"
    code += "atexit.register(lambda: print('imported:', *sys.modules)); main()"
    worker = workers.start("--burst", "--concurrency", "1", program=(sys.executable, "-c", code))
    assert worker.ended() == 0, worker.text
    imported = set(worker.text.partition("imported:")[2].split())
    ours = {module for module in imported if module.split(".")[0] == "fastq"}
    listed = {*FOLDERS.split(), *(f"fastq.{name}" for name in IN_THE_ROOT.split())}
    assert {folder_of(module, ours) for module in ours} ^ listed == set()
    # redis-py imports by itself what it finds, such as OpenTelemetry's SDK.
    code = "import redis.asyncio, sys; print(*sys.modules)"
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    others = {module.split(".")[0] for module in imported - {*alone.split()} if not module.startswith(AT_SITE)}
    assert others - sys.stdlib_module_names - {"fastq", "__mp_main__"} - {*OF_OTHERS.split()} == set()
