"""mypy and pyright find nothing wrong with a page of typed tasks, and each of the mistakes that are put into it."""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGE = (HERE / "typed_tasks.py").read_text("utf-8")
MISTAKES = {
    "an argument of the wrong type": ("resize.task(7, width=800)", 'resize.task("7", width=800)'),
    "an argument of the wrong type, enqueued": ('resize.enqueue(7, 800, mode="fill")', 'resize.enqueue(7, "800")'),
    "a literal that is none": ('resize.enqueue(7, 800, mode="fill")', 'resize.enqueue(7, 800, mode="filll")'),
    "an argument that is missing": ("resize.task(id) for", "resize.task() for"),
    "an argument that there is not": ("resize.task(7, width=800)", "resize.task(7, widht=800)"),
    "one argument too many": ("later.aenqueue(7)", "later.aenqueue(7, 8)"),
    "an argument by place that has a name alone": ('(7, 800, mode="fill")', '(7, 800, "fill")'),
    "the wrong class": ('ship.enqueue(7, Address("Lange Str. 1", "Ulm"))', 'ship.enqueue(7, "Ulm")'),
    "an option of the wrong type": ('queue="media", max_retry=3', 'queue="media", max_retry="3"'),
    "an option that there is not": ('queue="media", max_retry=3', 'queue="media", retries=3'),
    "an option of a call that there is not": ('options(queue="low"', 'options(quue="low"'),
    "the context given to a producer": ("charge.enqueue(7, cents=100)", "charge.enqueue(Env(1), 7, cents=100)"),
    "a call without the context": ("charge(context, 7, 100)", "charge(7, 100)"),
    "an attribute that the env lacks": ("ctx.env.limit", "ctx.env.limti"),
    "a coroutine that is not awaited": ("await resize.aenqueue(7), TaskInfo", "resize.aenqueue(7).id, str"),
    "a setting of a task that there is not": ("strict=True", "strickt=True"),
    "a result of another type": ("assert_type(resize(7), dict[str, int])", "resize(7).append(1)"),
    "a result of another type, waited for": (
        "assert_type(resize.submit(7).result(), dict[str, int])",
        "resize.submit(7).result().append(1)",
    ),
    "a handle that is not awaited": ("assert_type(await done, int)", "done + 1"),
    "an argument of the wrong type, submitted": ("charge.submit(7, cents=100)", 'charge.submit(7, cents="1")'),
    "an item of the wrong type": ('embed.task("text"), TaskCall[float]', "embed.task(7), TaskCall[float]"),
    "an item of another class": ('insert.submit(Address("Lange Str. 1", "Ulm"))', 'insert.submit("Ulm")'),
    "a batch that is none": ("def embed(texts: Batch[str, Env])", "def embed(texts: str)"),
    "a batch handler that returns no list": ("-> list[float]:", "-> float:"),
    "a size that is none": ('"insert", batch=500', '"insert", batch="500"'),
    "a wait without a batch": ('"insert", batch=500', '"insert", max_wait=1'),
    "a lifespan that yields nothing": (
        "def env() -> Iterator[Env]:\n    yield Env",
        "def env() -> Env:\n    return Env",
    ),
}


def run_mypy(directory: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--no-error-summary",
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
        str(directory),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


def run_pyright(directory: Path) -> str:
    if not has_pyright():
        pytest.skip("there is no pyright that runs here")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(directory)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


@cache
def has_pyright() -> bool:
    """Return whether pyright is there, and has or gets the Node that it needs."""
    return subprocess.run([sys.executable, "-m", "pyright", "--version"], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("checker", [run_mypy, run_pyright])
def test_the_page_is_right_and_each_mistake_is_found_where_it_is(
    checker: Callable[[Path], str], tmp_path: Path
) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "right.py").write_text(PAGE, "utf-8")
    wrong: dict[str, int] = {}
    for number, (right, mistake) in enumerate(MISTAKES.values()):
        assert PAGE.count(right) >= 1, right
        (tmp_path / f"wrong_{number}.py").write_text(PAGE.replace(right, mistake, 1), "utf-8")
        wrong[f"wrong_{number}.py"] = PAGE[: PAGE.index(right)].count("\n") + 1
    said = checker(tmp_path)
    found = {(file, int(line)) for file, line in re.findall(r"(\w+\.py):(\d+)[:\d]*(?: -)? error", said)}
    missed = [name for name, place in zip(MISTAKES, wrong.items(), strict=True) if not near(place, found)]
    assert missed == [], said
    assert {file for file, _ in found} == set(wrong), said


def near(place: tuple[str, int], found: set[tuple[str, int]]) -> bool:
    """Return whether an error was found there, or in the line above, where a decorator stands."""
    file, line = place
    return bool({(file, line), (file, line - 1)} & found)
