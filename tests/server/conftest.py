"""The actors' tests stop what they started in the middle of anything, connecting included."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let a connect that is cancelled half-way leave its transport to the garbage collector.

    asyncio and redis-py do so; ``on_bench`` collects it within the test.
    """
    item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
