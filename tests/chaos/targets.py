"""What can be struck, and which processes of a server there are at the moment."""

from typing import Final

from tests.chaos.database import Database
from tests.chaos.fleet import Fleet, Generation, family_of, parent_of
from tests.chaos.ledger import LedgerTail
from tests.chaos.proxy import Proxies


class Targets:
    """Servers, Redis and the proxies before it; the last proxy is the producer's."""

    def __init__(self, fleet: Fleet, database: Database, proxies: Proxies, tail: LedgerTail) -> None:
        self.fleet: Final = fleet
        self.database: Final = database
        self.proxies: Final = proxies
        self._tail: Final = tail

    def children(self, generation: Generation) -> list[int]:
        """Return the children that have worked; the running ones, if there are any, since they have something to lose.

        One that never worked is left alone: five of those in a row, and the pool rightly gives up.
        """
        self._tail.update()
        for pids in self._tail.workers(generation.number):
            if living := [pid for pid in pids if parent_of(parent_of(pid)) == generation.pid]:
                return sorted(living)
        return []

    def hook_children(self, generation: Generation, preloader: int) -> list[int]:
        """Return the preloader's children that have not worked: those of the hooks, and some that are young."""
        if preloader <= 1:
            return []
        worked = {pid for pids in self._tail.workers(generation.number) for pid in pids}
        return sorted(pid for pid in family_of(generation.mark) - worked if parent_of(pid) == preloader)
