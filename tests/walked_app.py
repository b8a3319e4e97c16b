"""An app whose child writes down which files of fastq it passes between a task ``begin`` and a task ``end``."""

import json
import os
import sys
from pathlib import Path
from types import FrameType

import fastq
from fastq import RunningTask, ServeMux

ROOT = Path(fastq.__file__).parent
FILE = "WALKED_FILE"
"""The variable of the environment that says where to write."""

mux = ServeMux()


class Walk:
    """The files that this thread passes; also as a profile function."""

    def __init__(self) -> None:
        self.passed: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note where a call leads."""
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            self.passed.add(str(path.relative_to(ROOT)))

    def begin(self) -> None:
        """Follow what this thread does from now on."""
        sys.setprofile(self)

    def end(self) -> set[str]:
        """Follow it no more; return what it passed."""
        sys.setprofile(None)
        return self.passed


_walk = Walk()


@mux.handler("begin")
def begin(task: RunningTask) -> None:
    """Begin to follow the child."""
    _walk.begin()


@mux.handler("t")
def handle(task: RunningTask) -> None:
    """Do nothing."""


@mux.handler("end")
def end(task: RunningTask) -> None:
    """Write down what was passed."""
    Path(os.environ[FILE]).write_text(json.dumps(sorted(_walk.end())), "utf-8")
