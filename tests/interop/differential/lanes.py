"""Runs campaigns beside each other, each on databases of its own: some wait for seconds to pass, others never."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from tests.interop.differential.aggregating import GroupChooser
from tests.interop.differential.campaign import Campaign, campaign
from tests.interop.differential.generator import Generator
from tests.interop.differential.schedules import ScheduleCampaign, schedule_campaign

SHARES: Final = 2
"""Of the sequences that wait for nothing; mostly, one side waits for the other."""
Run: TypeAlias = Campaign | ScheduleCampaign


def run_all(seed: int, peer_binary: Path, limit: int) -> list[Run]:
    """Let each run sequences until all its goals are reached often enough, or the limit of their number."""
    begin: Sequence[Callable[[Path], AbstractContextManager[Run]]] = (
        *(partial(campaign, Generator(seed + number, SHARES)) for number in range(SHARES)),
        partial(campaign, GroupChooser(seed)),
        partial(schedule_campaign, seed),
    )

    def run_one(begin_one: Callable[[Path], AbstractContextManager[Run]]) -> Run:
        with begin_one(peer_binary) as run:
            run.run_until_all_is_reached(limit)
            return run

    with ThreadPoolExecutor() as pool:
        return list(pool.map(run_one, begin))
