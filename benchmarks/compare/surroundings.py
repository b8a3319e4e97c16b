"""What a contender's processes find around them: variables, a working directory, and where their output goes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is the same for all processes of a turn."""

    variables: Mapping[str, str]
    directory: Path
    log: IO[bytes]


def variables(meter: Path, url: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables: little of ours, the meter, Redis, and the contender's own."""
    return {
        **{name: os.environ[name] for name in KEPT if name in os.environ},
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "COMPARE_METER": str(meter),
        "COMPARE_REDIS_URL": url,
        **own,
    }
