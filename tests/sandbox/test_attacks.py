"""All attacks are contained and leak nothing: as root and unprivileged, also with a layer left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.sandbox.attack_runs import AttackRuns, Setting, settings
from tests.sandbox.machine_tiers import offers
from tests.support import python

from jobyard.sandbox.attacks.__main__ import SelftestReport
from jobyard.sandbox.attacks.attack import Attack, Layer
from jobyard.sandbox.attacks.catalogue import ATTACKS
from jobyard.sandbox.attacks.runner import select
from jobyard.sandbox.protocol import Tier


@pytest.fixture(scope="module")
def attack_runs() -> Iterator[AttackRuns]:
    made = AttackRuns()
    yield made
    made.close()


@pytest.mark.timeout(300)  # a setting waits for those before it
@pytest.mark.parametrize("setting", settings(), ids=str)
def test_every_attack_is_contained(setting: Setting, attack_runs: AttackRuns) -> None:
    report = attack_runs.of(setting)
    if report.state is None or report.state.tier is None:
        assert not offers(setting), f"this machine supports the tier: {report.refusal}"
        pytest.skip(f"{setting} is not supported here: {report.refusal}")
    assert report.state.tier is setting.tier
    escaped = {f"#{each.number} {each.name}": each.problems for each in report.reports if each.contained is False}
    assert escaped == {}
    assert sum(each.contained is True for each in report.reports) > 70


def test_attack_numbers_are_unique_and_complete() -> None:
    numbers = [attack.number for attack in ATTACKS]
    assert len(set(numbers)) == len(numbers)
    assert set(range(1, 71)) <= set(numbers)
    items = select([])
    assert len({item.number for item in items}) == len(items)


def test_attacks_have_expectations_in_each_tier() -> None:
    """Only tier C and runs without a layer may have attacks with any result accepted."""
    assert [attack.name for attack in ATTACKS if not attack.expectation(Tier.A)] == []
    assert [attack.name for attack in ATTACKS if not attack.expectation(Tier.B)] == []
    alone = {layer: [attack for attack in ATTACKS if _is_held_without(attack, layer)] for layer in Layer}
    assert len(alone[Layer.SECCOMP]) > 80
    assert len(alone[Layer.NAMESPACES]) > 60


def _is_held_without(attack: Attack, layer: Layer) -> bool:
    return bool(attack.expectation(Tier.A, layer))


def test_tier_b_without_cgroups_needs_every_layer() -> None:
    """Without cgroups it can contain a single process only, and it takes every layer to keep it at one."""
    for layer in Layer:
        result = python(
            "-m", "jobyard.sandbox.attacks", "--tier", "B", "--without", layer, "--only", "49", cwd=Path("/")
        )
        report = msgspec.json.decode(result.stdout, type=SelftestReport)
        assert report.reports == [], layer
        assert report.refusal.startswith("B: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_also_tests_as_an_unprivileged_user() -> None:
    assert {setting.tier for setting in settings() if setting.unprivileged} == {Tier.B, Tier.C}
