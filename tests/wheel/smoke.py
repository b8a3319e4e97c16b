"""Shows that an installed fastq works, from its wheel and away from the source tree: ``python …/tests/wheel/smoke.py``.

Needs nothing but fastq and its run-time dependencies. Takes the golden messages from beside this file.
"""

import importlib
import json
import pkgutil
import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points, version
from pathlib import Path

import fastq
from fastq.broker.embedded import server_program
from fastq.codec import decode_task_message, encode_task_message
from fastq.errors import BrokerConnectionError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "vectors.json"
NEED_MORE = {"fastq.testing.plugin"}
"""What is for those alone who have pytest."""


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def check_place() -> None:
    """See that what is tested is what was installed; Python puts the script's directory first, not the current one."""
    installed = Path(sysconfig.get_path("platlib")).resolve()
    assert Path(fastq.__file__).resolve().is_relative_to(installed), f"{fastq.__file__} is not under {installed}"
    assert version("fastq-worker") == fastq.__version__, (version("fastq-worker"), fastq.__version__)
    say(f"fastq {fastq.__version__} from {installed}, Python {sys.version.split()[0]}")


def check_imports() -> None:
    """Import every module: one that needs more than the run-time dependencies fails here."""
    found = [info.name for info in pkgutil.walk_packages(fastq.__path__, "fastq.")]
    modules = [name for name in found if not name.endswith(".__main__") and name not in NEED_MORE]
    compiled = [name for name in modules if not (importlib.import_module(name).__file__ or "").endswith(".py")]
    assert compiled, "the wheel has no compiled module"
    say(f"imported {len(modules)} modules, {len(compiled)} of them compiled")


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
    names = sorted(point.name for point in entry_points(group="console_scripts") if point.value.startswith("fastq."))
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
    check_enqueue()


if __name__ == "__main__":
    main()
