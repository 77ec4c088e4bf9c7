"""All attacks are contained and leak nothing: as root and unprivileged, also with a layer left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.sandbox.attack_runs import AttackRuns, Setting, settings
from tests.sandbox.machine_tiers import offers, require_tier
from tests.support import python

from jobyard.sandbox.attacks import runner
from jobyard.sandbox.attacks.__main__ import SelftestReport
from jobyard.sandbox.attacks.attack import Attack, Expected, Layer
from jobyard.sandbox.attacks.catalogue import ATTACKS
from jobyard.sandbox.attacks.honeypot import Honeypot
from jobyard.sandbox.attacks.leaks import ResourceSnapshot
from jobyard.sandbox.attacks.private_daemon import private_daemon
from jobyard.sandbox.attacks.runner import AttackReport, attack_context, select
from jobyard.sandbox.attacks.scenarios import AttackContext
from jobyard.sandbox.daemon.languages import load
from jobyard.sandbox.protocol import Language, RunFinished, RunVerdict, SandboxState, Tier


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
    assert report.state.unix_sockets is setting.unix_sockets, report.state.why_no_unix_sockets
    assert report.state.tcp_sockets == setting.tcp_sockets, report.state.why_no_tcp
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


async def test_attacks_wait_for_languages_that_are_still_tested(tmp_path: Path) -> None:
    """The daemon's own test of a language must not look like something that an attack has left behind."""
    known = load()
    slow = msgspec.structs.replace(known["bash"].self_test, source="sleep 1\necho ok", stdout="ok\n")
    bash = msgspec.structs.replace(known["bash"], self_test=slow, slow_start=True)
    file = tmp_path / "languages.yaml"
    file.write_bytes(msgspec.json.encode({"python": known["python"], "bash": bash}))
    async with private_daemon(slots=2, file=file) as daemon, attack_context(daemon.socket) as context:
        require_tier(context.state)
        if context.state.tier is Tier.C:
            pytest.skip("tier C runs Python only")
        assert context.state.checking == ("bash",)
        reports = [report async for report in runner.run_attacks(context, select(["1", "121"]))]
    assert [(each.number, each.contained, each.problems) for each in reports] == [(1, True, []), (121, True, [])]


class FakeHoneypot:
    def problems(self) -> list[str]:
        return []


class FakeConnection:
    async def checked_state(self) -> SandboxState:
        return SandboxState(tier=Tier.A, slots=8, languages=(Language(name="python", version="3"),))


async def reports_of(monkeypatch: pytest.MonkeyPatch, leaks: list[list[str]], seen: RunFinished) -> list[AttackReport]:
    """Run three attacks with the same response; each look for leaks finds the next of `leaks`."""

    async def attack(*_: object) -> tuple[RunFinished, None]:
        return seen, None

    async def find_leaks(*_: object) -> list[str]:
        return leaks.pop(0) if leaks else []

    monkeypatch.setattr(runner, "_attack", attack)
    monkeypatch.setattr(runner, "find_leaks", find_leaks)
    connection: Any = FakeConnection()
    state = await connection.checked_state()
    context = AttackContext(
        connection, cast(Honeypot, FakeHoneypot()), Path(), state, snapshot=cast(ResourceSnapshot, "none")
    )
    monkeypatch.setattr(runner, "_snapshot", find_leaks)
    attacks = [Attack(number, f"attack {number}", "", Expected()) for number in (1, 2, 3)]
    return [report async for report in runner.run_attacks(context, attacks)]


OK_RESPONSE = RunFinished(id=0, verdict=RunVerdict.OK, exit_code=0, tier=Tier.A)


async def test_leak_of_a_group_is_attributed_to_the_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    # The group, then each alone; after a problem a snapshot is taken first.
    leaks = [["1 processes left behind"], [], [], ["1 processes left behind"], [], []]
    reports = await reports_of(monkeypatch, leaks, OK_RESPONSE)
    assert [(each.number, each.contained) for each in reports] == [(1, True), (2, False), (3, True)]


async def test_leak_of_a_group_is_reported_even_if_no_attack_has_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = await reports_of(monkeypatch, [["1 processes left behind"]], OK_RESPONSE)
    assert [each.contained for each in reports] == [False, True, True]
    assert reports[0].problems == ["in a group: 1 processes left behind"]


async def test_wrong_result_in_a_group_is_reported_unless_it_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = msgspec.structs.replace(OK_RESPONSE, verdict=RunVerdict.RUNTIME_ERROR)
    assert {each.contained for each in await reports_of(monkeypatch, [], failed)} == {False}
