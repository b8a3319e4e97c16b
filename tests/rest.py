"""The tests that the quick set leaves out: ``pytest -p tests.rest``."""

import pytest

from tests.quick import is_left_out


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the quick tests."""
    rest = [item for item in items if is_left_out(item)]
    config.hook.pytest_deselected(items=[item for item in items if not is_left_out(item)])
    items[:] = rest
