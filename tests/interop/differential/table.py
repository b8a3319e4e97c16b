"""The table of what was reached: operations, how often each succeeded, and how often it met which error."""

from tests.interop.differential.campaign import Campaign
from tests.interop.differential.goal import OK

__all__ = ["table_of"]


def table_of(run: Campaign) -> str:
    reached = run.generator.reached
    names = list(dict.fromkeys(goal.name for goal in run.generator.goals))
    lines = [f"{run.sequences} sequences, {reached.total()} operations (name, succeeded, errors met)"]
    for name in names:
        others = [f"{ending} {count}" for (each, ending), count in sorted(reached.items()) if each == name != ending]
        failed = ", ".join(each for each in others if not each.startswith(f"{OK} "))
        lines.append(f"{name:32} {reached[name, OK]:6}  {failed}")
    return "\n".join(lines) + "\n"
