"""Choice of the tier by canaries, and the languages that are offered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.sandbox import delegated_cgroups

from jobyard.sandbox.daemon import canaries, cgroup_discovery, languages, tiers
from jobyard.sandbox.daemon.daemon import DaemonOptions, SandboxDaemon
from jobyard.sandbox.daemon.tier_runtime import TierRuntime
from jobyard.sandbox.protocol import Fault, Limits, RunRejected, RunRequest, Tier

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


async def test_tier_without_its_filter_is_rejected() -> None:
    groups, why = cgroup_discovery.find()
    if groups is None:
        assert not delegated_cgroups.possible(), why
        pytest.skip(why)
    runtime = TierRuntime(Tier.A, languages.load(), groups, pool=0, without=["seccomp"])
    try:
        await runtime.open()
        with pytest.raises(canaries.CanaryEscaped, match="make a namespace"):
            await canaries.run_canaries(runtime)
    finally:
        await runtime.close()


async def test_unavailable_tiers_have_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_discovery, "find", lambda: (None, "none today"))
    with pytest.raises(tiers.TierUnavailable) as refusal:
        await tiers.choose(languages.load(), Tier.A, None)
    assert list(refusal.value.reasons) == list(Tier)
    assert "none today" in refusal.value.reasons[Tier.A]


async def test_daemon_without_a_tier_rejects_runs_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_discovery, "find", lambda: (None, "none today"))
    daemon = SandboxDaemon(DaemonOptions(min_tier=Tier.A))
    await daemon.start()
    try:
        state = daemon.state()
        assert (state.tier, state.languages) == (None, ())
        assert "none today" in state.reason
        result = await daemon.run(
            RunRequest(id=3, language="python", source=b"print(1)", limits=Limits(time_seconds=30))
        )
        assert isinstance(result, RunRejected)
        assert (result.fault, result.id) == (Fault.SANDBOX_UNAVAILABLE, 3)
        assert "none today" in result.message
    finally:
        await daemon.stop()


async def test_only_languages_that_work_are_offered(tmp_path: Path) -> None:
    path = tmp_path / "languages.yaml"
    path.write_text(
        """
python:
  version: [/usr/bin/python3, --version]
  file: main.py
  memory: address_space
  self_test: {source: "print(1)", stdout: "1\\n"}
wrong:
  version: [/usr/bin/python3, --version]
  file: main.py
  memory: address_space
  self_test: {source: "print(1)", stdout: "2\\n"}
absent:
  version: [/usr/bin/no-such-tool, --version]
  file: main.x
  memory: address_space
  run: [/usr/bin/no-such-tool, main.x]
  self_test: {source: "", stdout: ""}
"""
    )
    daemon = SandboxDaemon(DaemonOptions(min_tier=Tier.C, languages=path, pool=0))
    await daemon.start()
    try:
        state = daemon.state()
        assert [language.name for language in state.languages] == ["python"]
        assert state.languages[0].version.startswith("Python 3")
        assert "OK" in state.missing["wrong"]
        assert "not installed" in state.missing["absent"] or "Python only" in state.missing["absent"]
        result = await daemon.run(RunRequest(id=1, language="wrong", source=b""))
        assert isinstance(result, RunRejected)
        assert result.fault is Fault.UNKNOWN_LANGUAGE
    finally:
        await daemon.stop()


@pytest.mark.parametrize("text", ["[", "python: {}", "python: {file: main.py, no_such_key: 1}", "- a"])
def test_invalid_languages_file_is_named_in_the_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "languages.yaml"
    path.write_text(text)
    with pytest.raises(languages.BadLanguages, match=r"languages\.yaml"):
        languages.load(path)
