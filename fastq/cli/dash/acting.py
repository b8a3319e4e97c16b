"""Views with actions on tasks: the keys, and the questions before an action."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from textual.binding import Binding, BindingType

from fastq.cli.dash.confirm import Confirm
from fastq.cli.dash.view import Hint, View
from fastq.common.states import TaskState
from fastq.info import TaskInfo
from fastq.inspector.jobs import Job, canceling, doing, may

ACTING: Final[Sequence[BindingType]] = (
    Binding("r", "act('run')", "run or retry the task now"),
    Binding("a", "act('archive')", "archive the task"),
    Binding("d", "act('delete')", "delete the task"),
    Binding("c", "act('cancel')", "cancel the task"),
)
NAMES: Final = {"r": "run", "a": "archive", "d": "delete", "c": "cancel"}


def hints_for(state: TaskState, *, all_too: bool = False) -> list[Hint]:
    """Return the keys for the actions on tasks in a state; capital letters act on all tasks of the state."""
    possible = [(key, name) for key, name in NAMES.items() if may(name, state)]
    hints = [Hint(key, name, acts=True) for key, name in possible]
    capitals = [key.upper() for key, name in possible if name != "cancel"]
    return hints + ([Hint("/".join(capitals), "all", acts=True)] if all_too and capitals else [])


class Acting(View):
    """A view with a task under the cursor."""

    @abstractmethod
    def target(self) -> TaskInfo | None:
        """Return the chosen task."""

    def action_act(self, name: str) -> None:
        """Act on the chosen task, after a confirmation."""
        info = self.target()
        if not self.may_act():
            return
        if info is None:
            self.say("There is no task here.")
        else:
            self.propose(name, [info])

    def propose(self, name: str, infos: Sequence[TaskInfo]) -> None:
        """Ask for confirmation of an action on tasks; refuse an action that their state does not allow."""
        state = infos[0].state
        if not may(name, state):
            hint = "; c cancels it" if may("cancel", state) else ""
            self.say(f"Cannot {name} a task in state {state}{hint}.")
            return
        self.confirm(canceling(infos) if name == "cancel" else doing(name, infos))

    def confirm(self, job: Job) -> None:
        """Ask for confirmation of a job."""
        Confirm.ask(self, job)
