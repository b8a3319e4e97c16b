"""Limits of descriptors: raised for main process and preloader, the given ones for children, and a clear refusal."""

import gc
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fastq.pool.main.preloader_client import PoolStartError
from fastq.pool.shared import descriptors
from fastq.pool.shared.descriptors import (
    check_descriptors,
    given_soft_limit,
    raise_own_limit,
    raise_soft_limit,
    set_soft_limit,
)
from tests.pool.harness import bench, run, settings


def limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


@pytest.fixture
def few() -> Iterator[int]:
    """Give this process a soft limit below its hard one, as most systems do."""
    soft, hard = limits()
    gc.collect()
    # Of the tests before, in this process, some have left descriptors open.
    few = min(hard - 1, 512 + len(os.listdir("/dev/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    descriptors._given.clear()


def test_the_soft_limit_is_raised_to_the_hard_one_and_set_again(few: int) -> None:
    hard = limits()[1]
    assert raise_soft_limit() == few
    assert limits() == (hard, hard)
    set_soft_limit(few)
    assert limits() == (few, hard)
    set_soft_limit(hard + 1)
    assert limits() == (hard, hard)


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_children_and_the_import_have_the_limit_that_was_given(few: int, start_method: str) -> None:
    raise_own_limit()
    raise_own_limit()
    assert given_soft_limit() == few < limits()[0]

    async def test() -> None:
        async with bench(settings("limits", start_method=start_method)) as b:
            assert (await b.run("limits")).data == f"{few} {few}".encode()

    run(test())


def test_a_limit_that_the_app_sets_at_its_import_is_its_childrens(few: int) -> None:
    async def test() -> None:
        async with bench(settings("lower_limit")) as b:
            assert (await b.run("limits")).data.endswith(b" 200")

    run(test())


def test_more_children_than_there_are_descriptors_for_are_refused_before_the_start() -> None:
    soft = limits()[0]
    most = (soft - descriptors.OTHERS) // descriptors.PER_CHILD
    assert check_descriptors(most) == ""

    async def test() -> None:
        with pytest.raises(PoolStartError, match=rf"take {2 * most + 66} .* may open {soft}: raise its hard limit"):
            async with bench(settings("raise", processes=most + 1)):
                pass

    run(test())


CROWD = """
import asyncio, resource
from tests.pool.harness import bench, settings
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
async def test():
    async with bench(settings(processes=160)) as b:
        assert await b.run("pid")
        print(len(b.pool.child_states), b.notices)
asyncio.run(test())
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is missing, which takes a capability from root")
def test_many_children_start_though_few_descriptors_may_travel_at_once() -> None:
    """Without CAP_SYS_RESOURCE, sockets may hold as many unread descriptors as a process may open."""
    command = [sys.executable, "-c", CROWD]
    if os.getuid() == 0:
        command = ["setpriv", "--bounding-set=-sys_resource,-sys_admin", *command]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "160 []\n", done.stderr[-3000:]
