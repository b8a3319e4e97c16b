"""Processes that collect the same tests at the same time do not each compile them."""

import fcntl
import gc
import sys
from pathlib import Path

import pytest

from tests import conftest


@pytest.fixture
def new(modules: Path, request: pytest.FixtureRequest) -> pytest.Module:
    path = modules / "test_new.py"
    path.write_text("")
    return pytest.Module.from_parent(request.session, path=path)


def test_a_module_is_new_until_pytest_has_compiled_it(new: pytest.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert conftest.is_new(new.path)
    assert list(new.collect()) == []
    assert not conftest.is_new(new.path)


@pytest.mark.parametrize("is_new", [False, True])
def test_one_process_at_a_time_has_a_new_module(
    is_new: bool, new: pytest.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "__file__", str(new.path))  # whose lock no other process has
    monkeypatch.setattr(conftest, "is_new", lambda path: is_new and path == new.path)
    running = conftest.pytest_make_collect_report(new)
    next(running)
    assert can_begin() is not is_new
    with pytest.raises(StopIteration):
        next(running)
    assert can_begin()


def can_begin() -> bool:
    """Return whether another process would have a new module at once."""
    with Path(conftest.__file__).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_garbage_is_collected_in_tests() -> None:
    assert gc.isenabled()
