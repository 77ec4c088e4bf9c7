"""The faults of `make mutants`, which takes minutes and is not part of `make test`, still fit the code."""

from __future__ import annotations

import pytest
from tests.house.repository import ROOT
from tests.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_changes_one_place_of_the_code(mutant: Mutant) -> None:
    assert (ROOT / mutant.path).read_text("utf-8").count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert (ROOT / mutant.tests[0]).exists()
