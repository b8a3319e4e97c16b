"""Profiles: curves through measured points, what waking up costs, and the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.planning.profile import Curve, Wakes, default_path, load_profile, save
from tests.planning.sample import profile, relaxed


def test_a_curve_is_straight_between_points_flat_before_and_goes_on_behind() -> None:
    curve = Curve(((100.0, 10.0), (200.0, 20.0), (400.0, 30.0)))
    assert [curve.at(size) for size in (0, 100, 150, 200, 300, 400, 600)] == [10, 10, 15, 20, 25, 30, 40]


def test_points_that_fall_share_their_mean() -> None:
    assert Curve.through({1.0: 5.0, 2.0: 3.0, 3.0: 10.0}).points == ((1.0, 4.0), (2.0, 4.0), (3.0, 10.0))
    assert Curve.through({1.0: 9.0, 2.0: 6.0, 3.0: 3.0}).points == ((1.0, 6.0), (2.0, 6.0), (3.0, 6.0))
    assert Curve.through({1.0: -1.0, 2.0: 1.0}).points == ((1.0, 0.0), (2.0, 1.0))


@relaxed
@given(
    st.dictionaries(st.floats(0, 1e6), st.floats(0, 1e3), min_size=2, max_size=8),
    st.floats(0, 1e7),
    st.floats(0, 1e7),
)
def test_a_bigger_payload_never_costs_less(points: dict[float, float], one: float, other: float) -> None:
    curve = Curve.through(points)
    assert curve.at(min(one, other)) <= curve.at(max(one, other)) * (1 + 1e-9)


@pytest.mark.parametrize("points", [(), ((1.0, 1.0),), ((1.0, 2.0), (2.0, 1.0)), ((2.0, 1.0), (1.0, 2.0))])
def test_what_is_no_curve_is_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="a curve needs at least two"):
        Curve(points)


def test_wake_ups_are_shared_where_tasks_come_quickly() -> None:
    wakes = Wakes(first_s=100e-6, shared_s=0.001)
    assert wakes.a_task(0) == pytest.approx(100e-6)
    assert wakes.a_task(1000) == pytest.approx(50e-6)


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "profile.json"
    save(profile(), path)
    assert load_profile(path) == profile()
    assert [entry.name for entry in path.parent.iterdir()] == ["profile.json"]


def test_a_profile_is_kept_with_the_state_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path().parent == tmp_path / "fastq"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path().parent == tmp_path / ".local" / "state" / "fastq"


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    record = profile().as_record()
    change(record)
    return json.dumps(record)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is not JSON"),
        ("[]", "is not a profile of version 1"),
        ("{}", "is not a profile of version 1"),
        (broken(lambda record: record.update(version=2)), "is not a profile of version 1"),
        (broken(lambda record: record.pop("costs")), "is not a profile: 'costs'"),
        (broken(lambda record: record["machine"].update(cores="2")), "'2' is not a finite number"),
        (broken(lambda record: record["machine"].update(memory_bytes=2.5)), "2.5 is not of type int"),
        (
            broken(lambda record: record["costs"].update(process_main={"points": [[1, 2]]})),
            "a curve needs at least two",
        ),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=error):
        load_profile(path)


def test_a_profile_that_is_not_there_tells_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="run fastq bench to make one"):
        load_profile(tmp_path / "none.json")
    with pytest.raises(ValueError, match="cannot read"):
        load_profile(tmp_path)
