"""`jobyard sandbox`: table, JSON, exit codes, and missing daemons."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from tests.cli.support import error_code, invoke
from tests.sandbox.attack_runs import Setting, settings
from tests.sandbox.fake_daemon import daemon_process
from tests.sandbox.machine_tiers import offers
from tests.support import ROOT

from jobyard.sandbox.attacks.private_daemon import private_daemon
from jobyard.sandbox.protocol import Tier

needs_a_sandbox = pytest.mark.skipif(
    not any(offers(setting) for setting in settings() if not setting.unprivileged and not setting.without),
    reason="this machine offers no tier",
)


def run(*words: str) -> Result:
    return invoke("sandbox", *words)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Path]:
    """A fake daemon that runs nothing, so that no attack ends as expected."""
    with daemon_process(tmp_path / "fake.sock") as socket:
        yield socket


@needs_a_sandbox
def test_selftest_prints_a_table() -> None:
    result = run("selftest", "--only", "12,49,audit hook")
    assert result.exit_code == 0, result.output
    lines = [line.split("\t") for line in result.stdout.splitlines() if "\t" in line]
    assert lines[0] == ["#", "attack", "expected", "seen", "ms", "verdict"]
    assert [line[0] for line in lines[1:]] == ["12", "49", "79"]
    assert all("contained" in line[5] for line in lines[1:])
    assert "3 contained, 0 not contained" in result.stdout


@needs_a_sandbox
def test_selftest_as_json() -> None:
    result = run("selftest", "--only", "49", "--json")
    result = json.loads(result.stdout)
    assert (result["contained"], result["attacks"][0]["number"], result["attacks"][0]["contained"]) == (True, 49, True)
    assert result["tier"] in {"A", "B", "C"}


@needs_a_sandbox
def test_status_shows_tier_languages_and_pool() -> None:
    result = run("status")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("daemon     started for this")
    assert "\ntier       " in result.stdout
    assert "language   python" in result.stdout


@needs_a_sandbox
def test_status_shows_tcp_and_its_memory_or_why_it_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobyard.yaml").write_text("sandbox: {tcp_sockets: 16}\n")
    monkeypatch.chdir(tmp_path)
    shown = run("status").stdout
    if offers(Setting(Tier.A)):
        assert "with at most 16 sockets; up to 144 MB beside the memory limit of each run" in " ".join(shown.split())
    else:
        assert "sandbox.tcp_sockets has no effect: tier" in shown


def test_an_attack_that_is_not_contained_exits_with_1(fake: Path) -> None:
    result = run("selftest", "--socket", str(fake), "--only", "49,118")
    assert result.exit_code == 1
    assert "ESCAPED" in result.stdout
    assert "0 contained, 1 not contained, 1 not applicable" in result.stdout
    assert "#49 sys.exit(300)" in result.stdout


def test_status_of_the_configured_daemon(fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobyard.yaml").write_text(f"sandbox:\n  socket: {fake}\n")
    monkeypatch.chdir(tmp_path)
    result = run("status")
    assert result.stdout.startswith(f"daemon     {fake}, pid ")
    assert "language   c" in result.stdout


def test_a_daemon_that_cannot_be_started_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inspect.unwrap(private_daemon).__kwdefaults__, "command", ("/no/such/python",))
    result = run("status")
    assert result.exit_code == 1
    assert error_code(result) == "configuration"
    assert "/no/such/python" in result.output


def test_mistake_in_the_languages_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobyard.yaml").write_text("sandbox: {languages: ours.yaml}\n")
    monkeypatch.chdir(tmp_path)
    for text, named in (
        ("bash: {rum: []}", "ours.yaml: bash: Object contains unknown field `rum`.\n"),
        ("bash: [\n", "ours.yaml: while parsing a flow node"),
    ):
        (tmp_path / "ours.yaml").write_text(text)
        result = run("status")
        assert result.exit_code == 1
        assert named in result.output


def test_status_of_another_daemon(fake: Path) -> None:
    result = json.loads(run("status", "--socket", str(fake), "--json").stdout)
    assert [language["name"] for language in result["languages"]] == ["python", "c"]


def test_a_missing_daemon_is_reported_in_one_line(tmp_path: Path) -> None:
    for words in (("status",), ("selftest",)):
        result = run(*words, "--socket", str(tmp_path / "none.sock"))
        assert result.exit_code == 1
        assert error_code(result) == "configuration"
        assert "Traceback" not in result.output


def test_invalid_options_are_rejected() -> None:
    assert run("selftest", "--only", "no-such-thing").exit_code == 2
    assert run("selftest", "--socket", "/x", "--tier", "A").exit_code == 2
    assert run("selftest", "--tier", "D").exit_code == 2


@needs_a_sandbox
def test_sigterm_cleans_up(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    # More than one attack, so that it is still at work when it is stopped.
    words = [sys.executable, "-m", "jobyard", "sandbox", "selftest", "--only", ",".join(map(str, range(1, 40)))]
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("1\t"):
                break
        process.terminate()
        process.stdout.read()
        assert process.wait(60) == 143
    assert list(tmp_path.iterdir()) == []
