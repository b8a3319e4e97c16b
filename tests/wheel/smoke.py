"""Shows that an installed fastq works, from its wheel and away from the source tree: ``python …/tests/wheel/smoke.py``.

Needs nothing but fastq and its run-time dependencies. Takes the golden messages from beside this file.
"""

import importlib
import importlib.util
import json
import pkgutil
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution, version
from pathlib import Path
from types import ModuleType

import fastq
from fastq.broker.transport.embedded import server_program
from fastq.errors import BrokerConnectionError
from fastq.wire.codec import decode_task_message, encode_task_message

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "vectors.json"
FASTQ = str(Path(sysconfig.get_path("scripts")) / "fastq")
EXTRAS = {
    "django": "fastq.contrib.connections fastq.contrib.django",
    "jinja2": "fastq.web",
    "opentelemetry": "fastq.contrib.otel",
    "prometheus_client": "fastq.metrics",
    "pytest": "fastq.testing.plugin",
    "rich": "fastq.cli.dash",
    "sqlalchemy": "fastq.contrib.sqlalchemy",
    "starlette": "fastq.web fastq.contrib.starlette",
    "textual": "fastq.cli.dash",
    "uvicorn": "fastq.web",
}
"""What is not installed with fastq, and the parts of it that may need that."""


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def check_place() -> None:
    """See that what is tested is what was installed; Python puts the script's directory first, not the current one."""
    installed = Path(sysconfig.get_path("platlib")).resolve()
    assert Path(fastq.__file__).resolve().is_relative_to(installed), f"{fastq.__file__} is not under {installed}"
    assert version("fastq-worker") == fastq.__version__, (version("fastq-worker"), fastq.__version__)
    say(f"fastq {fastq.__version__} from {installed}, Python {sys.version.split()[0]}")


def check_imports() -> None:
    """Import every module: one that needs more than the run-time dependencies fails here, unless it is for an extra."""
    names = [info.name for info in pkgutil.walk_packages(fastq.__path__, "fastq.")]
    # Django's models are there only in a project with settings.
    names = [name for name in names if not name.startswith("fastq.contrib.django.")]
    modules = [module for name in names if not name.endswith(".__main__") and (module := imported(name))]
    compiled = [module for module in modules if not (module.__file__ or "").endswith(".py")]
    assert compiled, "the wheel has no compiled module"
    say(f"imported {len(modules)} modules of {len(names)}, {len(compiled)} of them compiled")


def imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        parts = EXTRAS.get((error.name or "").partition(".")[0], "").split()
        if any(f"{name}.".startswith(f"{part}.") for part in parts):
            return None
        raise


def check_extras() -> None:
    """See that without its extra a command says what to install."""
    for module, command, extra in (("textual", "dash", "dash"), ("prometheus_client", "exporter", "metrics")):
        if not importlib.util.find_spec(module):
            done = subprocess.run([FASTQ, command], check=False, capture_output=True, text=True)
            assert done.returncode == 1, done
            assert f"pip install 'fastq-worker[{extra}]'" in done.stderr, done
            say(done.stderr.strip())


def check_files() -> None:
    """See that the files for Prometheus and Grafana are there, which need no extra."""
    for name in ("rules", "dashboard"):
        done = subprocess.run([FASTQ, "metrics", name], check=True, capture_output=True, text=True)
        assert "fastq_queue_backlog_seconds" in done.stdout, done


def check_codec() -> None:
    """Read what Go wrote, and write the same bytes again."""
    cases = [case for case in json.loads(GOLDEN.read_text())["cases"] if case["message"] == "TaskMessage"]
    seen = 0
    for case in cases:
        if isinstance(case.get("encoded"), str) and not case.get("map_order_may_differ"):
            encoded = bytes.fromhex(case["encoded"])
            assert encode_task_message(decode_task_message(encoded)) == encoded, case["name"]
            seen += 1
    assert seen, f"no golden message in {GOLDEN}"
    say(f"read and wrote {seen} golden messages")


def check_scripts() -> None:
    """Ask every installed command for its help."""
    names = sorted(distribution("fastq-worker").entry_points.select(group="console_scripts").names)
    for name in names:
        program = Path(sysconfig.get_path("scripts")) / name
        subprocess.run([str(program), "--help"], check=True, stdout=subprocess.DEVNULL)
    say(f"commands: {', '.join(names) or 'none'}")


def check_enqueue() -> None:
    """Put a task into an embedded Redis, where there is a server program to embed."""
    try:
        server_program()
    except BrokerConnectionError as error:
        say(f"nothing enqueued: {error}")
        return
    with fastq.Client("embedded://") as client:
        info = client.enqueue(fastq.Task("wheel:smoke", {"n": 1}))
    assert info.state is fastq.TaskState.PENDING, info
    say(f"enqueued {info.id}")


def main() -> None:
    check_place()
    check_imports()
    check_codec()
    check_scripts()
    check_extras()
    check_files()
    check_enqueue()


if __name__ == "__main__":
    main()
