"""Random schedules under virtual time: limits hold at every instant, nothing is lost, and nothing is left behind.

`python -m tests.github.simulation.run --help` runs more seeds, and repeats one.
"""

from __future__ import annotations

import pytest
from tests.github.simulation.run import calls_until_rest, run_scenario, run_seed
from tests.github.simulation.scenario import KINDS, Effect, draw, with_crash
from tests.story.sizes import size

SEEDS = size(
    {"memory": 185, "sqlite": 5, "redis": 5, "postgres": 5},
    {"memory": 9000, "sqlite": 400, "redis": 350, "postgres": 250},
)
PER_TEST = size(5, 50)
BATCHES = [(engine, first) for engine, count in SEEDS.items() for first in range(0, count, PER_TEST)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("engine", "first"), BATCHES)
def test_every_property_holds_for_these_seeds(engine: str, first: int) -> None:
    found = {seed: run_seed(seed, None, engine) for seed in range(first, first + PER_TEST)}
    assert {seed: problems for seed, problems in found.items() if problems} == {}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("effect", list(Effect))
def test_every_property_holds_after_a_crash_at_any_call(effect: Effect) -> None:
    calls = range(0, calls_until_rest(), size(29, 1))
    assert len(calls) > 10
    found = {number: run_scenario(with_crash(number, effect), "memory") for number in calls}
    assert {number: problems for number, problems in found.items() if problems} == {}


def test_the_seeds_cover_every_kind_of_fault() -> None:
    assert {draw(seed).faults for seed in range(SEEDS["memory"])} == set(KINDS)
