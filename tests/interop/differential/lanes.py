"""Runs campaigns beside each other, each on databases of its own: some wait for seconds to pass, others never."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interop.differential.aggregating import GroupChooser
from tests.interop.differential.campaign import Campaign, Chooser, campaign
from tests.interop.differential.generator import Generator

__all__ = ["choosers", "run_beside_each_other"]


def choosers(seed: int) -> list[Chooser]:
    return [Generator(seed), GroupChooser(seed)]


def run_beside_each_other(each: Iterable[Chooser], peer_binary: Path, limit: int) -> list[Campaign]:
    """Let each choose sequences until all its goals are reached often enough, or the limit of their number."""

    def run_one(chooser: Chooser) -> Campaign:
        with campaign(chooser, peer_binary) as run:
            run.run_until_all_is_reached(limit)
            return run

    with ThreadPoolExecutor() as pool:
        return list(pool.map(run_one, each))
