import re
import subprocess
import sys
import uuid

import pytest

from fastq._ids import format_ids, new_task_id, new_task_ids, next_task_id

FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

FORK = """
import os
from fastq._ids import new_task_id, new_task_ids

before = [new_task_id(), *new_task_ids(3)]
child = os.fork()
ids = [new_task_id(), *new_task_ids(3)]
os.write(1, " ".join([*ids, ""] if child == 0 else [*before, *ids, ""]).encode())
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_ids_are_random_uuids_in_lower_case() -> None:
    ids = [new_task_id(), *new_task_ids(10_000)]
    assert len(set(ids)) == 10_001
    for task_id in ids:
        assert FORM.fullmatch(task_id)
        assert str(uuid.UUID(task_id)) == task_id
    digits = [{task_id[place] for task_id in ids} for place in range(36)]
    assert [len(seen) for seen in digits] == [{8: 1, 13: 1, 14: 1, 18: 1, 19: 4, 23: 1}.get(i, 16) for i in range(36)]


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_as_many_ids_are_made_as_asked_for(n: int) -> None:
    assert len(new_task_ids(n)) == n


def test_negative_or_absurd_number_is_refused() -> None:
    with pytest.raises(ValueError, match="n must not be negative: -1"):
        new_task_ids(-1)
    for n in (2**59, 2**60, 2**62, 2**64):
        with pytest.raises((OverflowError, MemoryError)):
            new_task_ids(n)


def test_ids_hold_what_the_system_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq._ids._urandom", lambda size: bytes(range(16)) * (size // 16))
    assert new_task_id() == str(uuid.UUID(bytes=bytes(range(16)), version=4))
    assert new_task_ids(3) == [new_task_id()] * 3


def test_fork_does_not_repeat_ids() -> None:
    # In a process of its own, because forking one that has threads is not sound.
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    ids = done.stdout.split()
    assert len(ids) == 12
    assert len(set(ids)) == 12


def test_ids_of_given_bytes_are_theirs() -> None:
    given = bytes(range(48))
    assert format_ids(given) == [str(uuid.UUID(bytes=given[at : at + 16], version=4)) for at in (0, 16, 32)]
    assert format_ids(b"") == format_ids(given[:15]) == []


def test_an_id_that_sorts_by_time_tells_it() -> None:
    newest_ms = uuid.UUID(next_task_id(0)).int >> 80
    now_ns = (newest_ms + 5) * 1_000_000 + 456_789
    ids = [next_task_id(now_ns + more) for more in (0, 0, 0, 1_000, 2_000_000, 1_000_000)]
    assert ids == sorted(set(ids))
    first, later = uuid.UUID(ids[0]), uuid.UUID(ids[4])
    assert [(each.version, each.variant) for each in (first, later)] == [(7, uuid.RFC_4122)] * 2
    assert [each.int >> 80 for each in (first, later)] == [newest_ms + 5, newest_ms + 7]
    assert int(ids[0][15:18], 16) == 456_789 * 4096 // 1_000_000


def test_ids_that_sort_by_time_are_random_behind_it() -> None:
    ids = [next_task_id(1) for _ in range(10_000)]
    assert ids == sorted(set(ids))
    digits = [{task_id[place] for task_id in ids} for place in range(20, 36) if place != 23]
    assert [len(seen) for seen in digits] == [16] * 15
