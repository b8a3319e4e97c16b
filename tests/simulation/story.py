"""The story of one task: who did what with it and when, and the faults meanwhile."""

from collections.abc import Iterable, Iterator
from typing import Final

from fastq.broker.scripts import SCRIPTS

MOST: Final = 300
FAULTS: Final = ("fault", "ready", "ends")


def story_of(task_id: str, trace: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a trace that name a task or a fault, shortened, with the scripts by their names."""
    names = {script.sha: name for name, script in SCRIPTS.items()}
    for line in trace:
        at_s, kind, rest = line.split(" ", 2)
        if task_id in rest or kind in FAULTS:
            head, found, digest_and_tail = rest.partition("b'EVALSHA', b'")
            digest, _, tail = digest_and_tail.partition("'")
            told = f"{head}{names.get(digest, digest)}{tail}" if found else rest
            yield f"{float(at_s):10.3f} {kind:8} {told[:MOST]}"
