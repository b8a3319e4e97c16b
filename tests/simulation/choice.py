"""Which site a run has, by name or by its seed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.sites import Site

SITES: Final = {"single": "sites.Site", "sentinel": "sentinels.Pair", "cluster": "cluster.Cluster"}
"""Imported when they are needed: a process that only replaces itself by another needs none."""
WITH_LANES: Final = "-lanes"
"""Behind a name: a queue of the world has lanes."""
NAMES: Final = [name + more for more in ("", WITH_LANES) for name in (*SITES, "any")]


class Sites:
    """The sites of a process: each is started when a seed needs it first."""

    def __init__(self, name: str, directory: Path, shim: Path) -> None:
        self._name, self._directory, self._shim = name, directory, shim
        self._made: dict[str, Site] = {}

    def of(self, seed: int, name: str = "") -> Site:
        """Return the site of a seed, or one by name."""
        asked = name or self._name
        name = asked.removesuffix(WITH_LANES)
        if name == "any":
            name = Random(f"{seed} site").choice(list(SITES))
        if name not in self._made:
            module, _, kind = SITES[name].partition(".")
            site = getattr(import_module(f"tests.simulation.{module}"), kind)
            self._made[name] = site(self._directory, self._shim)
        self._made[name].has_lanes = asked.endswith(WITH_LANES)
        return self._made[name]

    def stop(self) -> None:
        """Stop all servers."""
        for site in self._made.values():
            site.stop()
