"""Processors of a process in a container: quotas of both versions of cgroups, in trees as kernels show them."""

import math
import os
from pathlib import Path

import pytest

from fastq.common.cpus import available_cpus, cgroup_cpus, whole_cpus

V1 = "30 25 0:27 {top} /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "30 25 0:27 {top} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
OTHER = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=continue
29 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""


def tree(root: Path, own: str, mounts: str, **quotas: str) -> Path:
    """Write a tree; a keyword names a group, ``__`` for a slash, and says its quota."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    (root / "proc/self/mountinfo").write_text(OTHER + mounts)
    for name, quota in quotas.items():
        is_v1 = "cgroup cgroup" in mounts
        group = (
            root / "sys/fs/cgroup" / ("cpu" if is_v1 else "") / name.removeprefix("top").replace("__", "/").lstrip("/")
        )
        group.mkdir(parents=True, exist_ok=True)
        if is_v1:
            amount, period = quota.split()
            (group / "cpu.cfs_quota_us").write_text(f"{amount}\n")
            (group / "cpu.cfs_period_us").write_text(f"{period}\n")
        else:
            (group / "cpu.max").write_text(f"{quota}\n")
    return root


@pytest.mark.parametrize(("quota", "cpus"), [("200000 100000", 2), ("150000 100000", 1.5), ("max 100000", math.inf)])
def test_a_container_has_the_quota_of_its_group(tmp_path: Path, quota: str, cpus: float) -> None:
    assert cgroup_cpus(tree(tmp_path, "0::/\n", V2.format(top="/"), top=quota)) == cpus


def test_the_least_quota_of_all_groups_above_counts(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        "0::/kubepods/pod1/main\n",
        V2.format(top="/"),
        kubepods="max 100000",
        kubepods__pod1="50000 100000",
        kubepods__pod1__main="400000 100000",
        kubepods__pod2="10000 100000",
    )
    assert cgroup_cpus(root) == 0.5


@pytest.mark.parametrize(("quota", "cpus"), [("250000 100000", 2.5), ("-1 100000", math.inf)])
def test_version_1_has_two_files(tmp_path: Path, quota: str, cpus: float) -> None:
    own = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/docker/abc\n"
    assert cgroup_cpus(tree(tmp_path, own, V1.format(top="/"), docker__abc=quota)) == cpus


def test_a_group_that_is_the_top_of_what_is_mounted_is_found(tmp_path: Path) -> None:
    """Docker without a namespace of cgroups: the path is the host's, the mount is the container's own group."""
    own = "4:cpuacct,cpu:/docker/abc\n"
    assert cgroup_cpus(tree(tmp_path, own, V1.format(top="/docker/abc"), top="100000 100000")) == 1


def test_a_mount_that_shows_another_part_of_the_tree_counts_at_its_top(tmp_path: Path) -> None:
    own = "0::/../../outside\n"
    assert cgroup_cpus(tree(tmp_path, own, V2.format(top="/other"), top="100000 100000")) == 1


@pytest.mark.parametrize("own", ["", "0::/\n", "nonsense\n", "0::/nowhere\n"])
def test_without_quotas_nothing_is_limited(tmp_path: Path, own: str) -> None:
    assert cgroup_cpus(tree(tmp_path, own, V2.format(top="/"))) == math.inf
    assert cgroup_cpus(tmp_path / "nothing") == math.inf


def test_processors_are_rounded_up_and_never_more_than_those_of_the_affinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 5}, raising=False)
    half, much = (
        tree(tmp_path / name, "0::/\n", V2.format(top="/"), top=f"{name} 100000") for name in ("50000", "900000")
    )
    assert (available_cpus(half), whole_cpus(half)) == (0.5, 1)
    assert (available_cpus(much), whole_cpus(much)) == (3, 3)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert whole_cpus(much) == 1
