"""Nothing gets out, nothing is left: the whole list, by root and by an ordinary user, each layer also alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.sandbox.attack_runs import Playing, Setting, settings
from tests.sandbox.machine_tiers import offers
from tests.support import python

from jobyard.sandbox.attacks.__main__ import SelftestReport
from jobyard.sandbox.attacks.attack import Attack, Layer
from jobyard.sandbox.attacks.catalogue import ATTACKS
from jobyard.sandbox.attacks.runner import select
from jobyard.sandbox.protocol import Tier


@pytest.fixture(scope="module")
def playing() -> Iterator[Playing]:
    made = Playing()
    yield made
    made.close()


@pytest.mark.timeout(300)  # the first of them waits for its turn
@pytest.mark.parametrize("setting", settings(), ids=str)
def test_every_attack_is_held(setting: Setting, playing: Playing) -> None:
    played = playing.of(setting)
    if played.state is None or played.state.tier is None:
        assert not offers(setting), f"this machine can do better: {played.refusal}"
        pytest.skip(f"{setting} is not to be had here: {played.refusal}")
    assert played.state.tier is setting.tier
    loose = {
        f"#{report.number} {report.name}": report.problems for report in played.reports if report.contained is False
    }
    assert loose == {}
    assert sum(report.contained is True for report in played.reports) > 70


def test_the_list_is_whole() -> None:
    numbers = [attack.number for attack in ATTACKS]
    assert len(set(numbers)) == len(numbers)
    assert set(range(1, 71)) <= set(numbers)
    items = select([])
    assert len({item.number for item in items}) == len(items)


def test_each_attack_promises_something_in_each_tier() -> None:
    """An empty promise is for tiers without a folder, and for layers that are the only ones to hold."""
    assert [attack.name for attack in ATTACKS if not attack.expectation(Tier.A)] == []
    assert [attack.name for attack in ATTACKS if not attack.expectation(Tier.B)] == []
    alone = {layer: [attack for attack in ATTACKS if _is_held_without(attack, layer)] for layer in Layer}
    assert len(alone[Layer.SECCOMP]) > 80
    assert len(alone[Layer.NAMESPACES]) > 60


def _is_held_without(attack: Attack, layer: Layer) -> bool:
    return bool(attack.expectation(Tier.A, layer))


def test_tier_b_without_groups_does_without_no_layer() -> None:
    """One process is all that it can hold, and the filter is what keeps it at one: it refuses rather than guess."""
    for layer in Layer:
        answer = python(
            "-m", "jobyard.sandbox.attacks", "--tier", "B", "--without", layer, "--only", "49", cwd=Path("/")
        )
        played = msgspec.json.decode(answer.stdout, type=SelftestReport)
        assert played.reports == [], layer
        assert played.refusal.startswith("B: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user tests what it has")
def test_root_plays_an_ordinary_user_too() -> None:
    assert {setting.tier for setting in settings() if setting.as_ordinary} == {Tier.B, Tier.C}
