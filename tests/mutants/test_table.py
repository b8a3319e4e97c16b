"""The table of mutants is true of today's code."""

from collections import Counter

import pytest

from tests.mutants.table import ROOT, Mutant, extension_of, read_mutants
from tests.quick import LEFT_OUT

MUTANTS = read_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_can_be_planted(mutant: Mutant) -> None:
    times = (ROOT / mutant.file).read_text("utf-8").count(mutant.find)
    assert times == 1
    assert mutant.find != mutant.put
    assert extension_of(mutant.file) or mutant.file.endswith((".py", ".lua"))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_names_tests_that_are_there(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists()
        assert not name or f"def {name}(" in (ROOT / path).read_text("utf-8")
        left_out = any(path == each or path.startswith(f"{each}/") for each in LEFT_OUT)
        assert not left_out or mutant.whole, f"make test does not run {path}"


def test_no_two_mutants_are_the_same() -> None:
    planted = Counter((mutant.file, mutant.find, mutant.put) for mutant in MUTANTS)
    assert planted.most_common(1)[0][1] == 1
