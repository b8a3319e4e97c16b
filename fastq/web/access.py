"""Who may do what: roles, the actions that each role may use, and the actions that are switched off."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Role(IntEnum):
    """What a user may do; each role may also do what the lower ones may."""

    VIEWER = 1
    """See everything."""
    OPERATOR = 2
    """Pause and resume queues and lanes, limit lanes; enqueue, edit, move, run, archive and cancel tasks; stop jobs."""
    ADMIN = 3
    """Delete tasks and queues; stop servers; repair."""

    @classmethod
    def of(cls, name: str) -> "Role":
        """Return a role by its name; ``ValueError`` for an unknown name."""
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(role.name.lower() for role in cls)
            raise ValueError(f"{name!r} is not a role; roles are {known}") from None


ACTIONS: Final[Mapping[str, Role]] = {
    "queue.pause": Role.OPERATOR,
    "queue.resume": Role.OPERATOR,
    "queue.delete": Role.ADMIN,
    "lane.limit": Role.OPERATOR,
    "lane.pause": Role.OPERATOR,
    "lane.resume": Role.OPERATOR,
    "task.run": Role.OPERATOR,
    "task.enqueue": Role.OPERATOR,
    "task.edit": Role.OPERATOR,
    "task.move": Role.OPERATOR,
    "task.archive": Role.OPERATOR,
    "task.cancel": Role.OPERATOR,
    "task.delete": Role.ADMIN,
    "job.stop": Role.OPERATOR,
    "server.quiet": Role.ADMIN,
    "server.stop": Role.ADMIN,
    "doctor.repair": Role.ADMIN,
}
"""All actions that change something, with the lowest role that may use each."""


@dataclass(frozen=True, slots=True)
class User:
    """A user whom the authentication has accepted; ``queues`` are patterns of the queues that the user sees."""

    name: str
    role: Role
    queues: tuple[str, ...] = ("*",)

    @classmethod
    def of(cls, name: str, rights: str) -> "User":
        """Return the user with rights such as ``operator`` or ``viewer@mail*,sms``; ``ValueError`` names bad rights."""
        role, at, globs = rights.partition("@")
        queues = tuple(globs.split(",")) if at else ("*",)
        if "" in queues or ":" in globs:
            raise ValueError(f"{rights!r}: write ROLE, or ROLE@QUEUE,QUEUE with patterns such as mail* (? for a colon)")
        return cls(name, Role.of(role), queues)

    @property
    def rights(self) -> str:
        """Return the rights in the form that ``of`` reads."""
        role = self.role.name.lower()
        return role if self.queues == ("*",) else f"{role}@{','.join(self.queues)}"


EVERYONE: Final = User("", Role.ADMIN)
"""The user of a server without authentication."""


@dataclass(frozen=True, slots=True)
class Access:
    """The actions that are allowed at all: none if ``read_only``, otherwise all except the ``forbidden`` actions."""

    read_only: bool = False
    forbidden: frozenset[str] = frozenset()

    @classmethod
    def of(cls, read_only: bool, forbidden: Iterable[str]) -> "Access":
        """Check the names of forbidden actions; ``ValueError`` names an unknown action."""
        names = frozenset(forbidden)
        for name in sorted(names - ACTIONS.keys()):
            raise ValueError(f"{name!r} is not an action; actions are {', '.join(ACTIONS)}")
        return cls(read_only, names)

    def may(self, user: User, action: str) -> bool:
        """Return whether a user may use an action."""
        return not self.read_only and action not in self.forbidden and user.role >= ACTIONS[action]
