"""The actors' tests stop what they started in the middle of anything, connecting included."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a connect that is cancelled half-way leave its transport to the garbage collector.

    asyncio and redis-py do so; ``on_bench`` collects it within the test.
    """
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
