"""The table of what was reached: operations, how often each succeeded, and how often it met which error."""

from collections import Counter
from collections.abc import Sequence

from tests.interop.differential.generator import Reached
from tests.interop.differential.goal import OK
from tests.interop.differential.intended import IntendedEntry
from tests.interop.differential.lanes import Run


def table_of(runs: Sequence[Run]) -> str:
    """Describe runs that found only intended differences."""
    reached: Reached = sum((run.generator.reached for run in runs), Counter())
    sequences, asyncs = (sum(getattr(run, name) for run in runs) for name in ("sequences", "asyncs"))
    used = used_in(runs)
    names = dict.fromkeys([goal.name for run in runs for goal in run.generator.goals] + [name for name, _ in reached])
    return "\n".join(
        [
            f"{sequences} sequences ({asyncs} through AsyncClient and AsyncInspector), {reached.total()} operations",
            f"{'operation':38} {'succeeded':>9}  errors met",
            *(_row(name, reached) for name in names),
            f"differences: none outside tests/differences.toml; {sum(1 for count in used.values() if count)} of its"
            f" {len(used)} entries were needed, {used.total()} times\n",
        ]
    )


def used_in(runs: Sequence[Run]) -> Counter[IntendedEntry]:
    """Count how often each entry of differences.toml was needed, those too that were not."""
    used = Counter(dict.fromkeys([entry for run in runs for entry in run.intended.entries], 0))
    for run in runs:
        used.update(run.intended.used)
    return used


def _row(name: str, reached: Reached) -> str:
    endings = {ending: count for (each, ending), count in reached.items() if each == name}
    failed = ", ".join(f"{ending} {count}" for ending, count in sorted(endings.items()) if ending != OK)
    return f"{name:38} {endings.get(OK, 0):9}  {failed}".rstrip()
