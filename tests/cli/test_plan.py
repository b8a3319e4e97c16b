"""``fastq plan``: what it says of a load, its JSON, and bad input."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from fastq.cli.main import main
from fastq.planning.profile import save
from tests.cli.commands import checked_json
from tests.planning.sample import profile

LOAD = ["--rate", "700/s", "--duration", "20ms", "--payload", "100B"]


@pytest.fixture(autouse=True)
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "measured.json"
    save(profile(), path)
    monkeypatch.chdir(tmp_path)
    return path


def written(*words: str) -> str:
    result = CliRunner().invoke(main, ["plan", "--profile", "measured.json", *words], catch_exceptions=False)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def refused(*words: str, code: int = 2) -> str:
    result = CliRunner().invoke(main, ["plan", *words], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (code, "")
    (line,) = result.stderr.splitlines()
    return line


def figures(text: str) -> dict[str, str]:
    """Return the figure of each line of the tables, by what it is."""
    rows = (line.split("  ") for line in text.splitlines() if "  " in line)
    return {cells[0]: next((cell.strip() for cell in cells[1:] if cell), "") for cells in rows}


def test_each_figure_has_its_line_and_its_reason() -> None:
    text = written(*LOAD, "--burst", "100k", "--redis-memory", "1GB", "--cores", "4", "--retention", "1h")
    found = figures(text)
    assert found["children needed"] == "20"
    assert found["servers needed"] == "6"
    assert found["servers x children"] == "6 x 4"
    assert found["completed tasks kept"] == "2,520,000"
    assert found["Redis memory"] == "1.0 GB"
    assert "Erlang C" in text
    assert "Little's law" in text
    assert "all of it CPU" in text


def test_waits_are_told_as_ranges_beside_what_they_are_in_one_queue() -> None:
    words = [
        "--rate",
        "80/s",
        "--duration",
        "20ms",
        "--cpu",
        "0",
        "--payload",
        "100B",
        "--children",
        "2",
        "--servers",
        "1",
    ]
    found = figures(text := written(*words))
    assert (found["mean wait"], found["one in a hundred waits"]) == ("15.1 ms to 30.4 ms", "74.6 ms to 217 ms")
    assert "17.8 ms in one queue for all slots" in text
    wait = checked_json(written(*words, "--json"), "plan")["wait"]
    assert wait["mean_range_s"] == pytest.approx([0.85 * wait["mean_s"], 1.6 * wait["mean_s"] + 0.002])
    assert wait["p99_range_s"] == pytest.approx([0.7 * wait["p99_s"], 2 * wait["p99_s"] + 0.004])


def test_the_verdict_names_the_next_limit() -> None:
    assert "This is enough: nothing is more than 70% busy. The next limit: cores." in written(*LOAD)
    assert "queues grow by 300/s. The limit: cores." in written(*LOAD, "--servers", "2")
    assert "but with less headroom than asked for. More than 70% busy: cores, children." in written(
        *LOAD, "--servers", "4", "--children", "4"
    )


def test_advice_is_given_where_it_is_due() -> None:
    assert "written as async def, many of them share a child" in written(*LOAD, "--cpu", "1ms")
    assert "as async def" not in written(*LOAD)
    mixed = written(*LOAD, "--load", "rate=1/s,duration=1s,payload=1kB,async")
    assert "its own queues and servers" in mixed
    assert "in a cluster of 3 nodes" in written("--rate", "200k/s", "--duration", "0", "--payload", "100B")
    assert "Even a cluster of 1,000 nodes" in written("--rate", "1G/s", "--duration", "0", "--payload", "100B")
    assert "Redis would need" in written(*LOAD, "--burst", "10M", "--redis-memory", "1GB")


def test_a_burst_alone_is_planned() -> None:
    text = written("--burst", "1M", "--duration", "20ms", "--payload", "1kB", "--within", "1h")
    assert "to process the burst" in figures(text)


@pytest.mark.parametrize(
    "words",
    [
        LOAD,
        [*LOAD, "--burst", "1M", "--redis-memory", "1GB"],
        [*LOAD, "--servers", "1", "--children", "1", "--burst", "1M"],
        ["--rate", "1G/s", "--duration", "9s", "--payload", "100B"],
        ["--burst", "5", "--duration", "0", "--payload", "100B"],
        ["--load", "rate=1/s,duration=1s,payload=1kB,async", "--shared"],
    ],
)
def test_its_json_is_as_the_schema_says(words: list[str]) -> None:
    checked_json(written(*words, "--json"), "plan")


def test_json_says_what_the_tables_say() -> None:
    found = checked_json(written(*LOAD, "--cores", "4", "--json"), "plan")
    assert (found["children_needed"], found["servers_needed"], found["is_enough"]) == (20, 6, True)
    assert found["limits"][0]["part"] == "cores"
    assert found["redis"]["memory_limit_bytes"] is None


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "there is no load: --rate 5000/s --duration 20ms --payload 2kB, or --load"),
        ("--rate 5000 --duration 20ms --payload 2kB", "'5000' is not a rate with its period"),
        ("--rate 5000/s --duration 20 --payload 2kB", "'20' is not a duration with its unit"),
        ("--rate 5000/s --duration 20ms --payload 2000", "'2000' is not a size with its unit"),
        ("--rate -5/s --duration 20ms --payload 2kB", "'-5/s' is not a rate"),
        ("--rate 0/s --duration 20ms --payload 2kB", "there is nothing to do"),
        ("--rate 5000/s --payload 2kB", "--duration is missing"),
        ("--cpu 5ms", "--rate and --duration and --payload is missing"),
        ("--rate 5/s --duration 20ms --cpu 1s --payload 2kB", "cpu must be from 0 to the duration of 0.02 s: 1 s"),
        ("--rate 5/s --duration 20ms --payload 1GB", "payload must be at most 512 MB"),
        ("--load rate=5/s,duration=1s", "lacks payload="),
        ("--load speed=5", "'speed=5' is not one of rate="),
        ("--rate 5/s --duration 1s --payload 1B --servers 0", "0 is not in the range"),
        ("--rate 5/s --duration 1s --payload 1B --servers 2 --shared", "only one server shares its machine with Redis"),
        ("--rate 5/s --duration 1s --payload 1B --utilization 1.5", "1.5 is not in the range"),
        ("--rate 5/s --duration 1s --payload 1B --utilization nan", "nan is not in the range"),
        ("--rate 5/s --duration 1s --payload 1B --cores nan", "nan is not in the range"),
        ("--rate 5/s --duration 1s --payload 1B --burst -1", "'-1' is not a number"),
        ("--rate 5/s --duration 1s --payload 1B --within 1h", "within=3600 s needs burst="),
        ("--rate 99999999999G/s --duration 1s --payload 1B", "is too large"),
        ("--rate 5/s --duration 300000h --payload 1B --network 10GB", "'10GB' is not a speed"),
    ],
)
def test_misuse_is_said_in_one_line_with_code_2(words: str, line: str) -> None:
    assert line in refused("--profile", "measured.json", *words.split())


def test_without_a_profile_it_says_how_to_get_one(tmp_path: Path) -> None:
    assert "run fastq bench to make one" in refused(*LOAD, code=1)
    (tmp_path / "bad.json").write_text("{}")
    assert "is not a profile of version 1" in refused("--profile", "bad.json", *LOAD, code=1)
