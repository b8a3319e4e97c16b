"""Which site a run has, by name or by its seed."""

from pathlib import Path
from random import Random
from typing import Final

from tests.simulation.cluster import Cluster
from tests.simulation.sentinels import Pair
from tests.simulation.sites import Site

SITES: Final[dict[str, type[Site]]] = {"single": Site, "sentinel": Pair, "cluster": Cluster}


class Sites:
    """The sites of a process: each is started when a seed needs it first."""

    def __init__(self, name: str, directory: Path, shim: Path) -> None:
        self._name, self._directory, self._shim = name, directory, shim
        self._made: dict[str, Site] = {}

    def of(self, seed: int, name: str = "") -> Site:
        """Return the site of a seed, or one by name."""
        name = name or self._name
        if name == "any":
            name = Random(f"{seed} site").choice(list(SITES))
        if name not in self._made:
            self._made[name] = SITES[name](self._directory, self._shim)
        return self._made[name]

    def stop(self) -> None:
        """Stop all servers."""
        for site in self._made.values():
            site.stop()
