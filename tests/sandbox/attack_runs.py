"""All attacks in all tiers of this machine, also with a layer left out: run once, used by many tests."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec
from tests.sandbox import delegated_cgroups
from tests.sandbox.unprivileged import unprivileged_python, why_impossible
from tests.support import ROOT

from jobyard.sandbox.attacks.__main__ import SelftestReport
from jobyard.sandbox.attacks.attack import Layer
from jobyard.sandbox.protocol import Tier

CONCURRENCY = 3  # most of the time they wait
TIMEOUT_SECONDS = 240


@dataclass(frozen=True, slots=True)
class Setting:
    tier: Tier
    without: Layer | None = None
    unprivileged: bool = False
    has_cgroups: bool = False  # cgroups delegated to this user
    unix_sockets: bool = False  # programs may create them
    tcp_sockets: int = 0  # how many a program may have

    def __str__(self) -> str:
        who = "unprivileged" if self.unprivileged or os.geteuid() != 0 else "root"
        return (
            f"{who}-{self.tier}"
            + ("-with-cgroups" if self.has_cgroups else "")
            + (f"-without-{self.without}" if self.without else "")
            + ("-unix-sockets" if self.unix_sockets else "")
            + ("-tcp" if self.tcp_sockets else "")
        )


def settings() -> list[Setting]:
    """The slowest first. An unprivileged user has no tier A; without cgroups, tier B needs every layer."""
    if os.geteuid() != 0:
        return [Setting(Tier.B), Setting(Tier.C)]
    return [
        Setting(Tier.A),
        Setting(Tier.A, unix_sockets=True),
        Setting(Tier.A, unix_sockets=True, tcp_sockets=16),
        Setting(Tier.A, Layer.SECCOMP),
        Setting(Tier.B, unprivileged=True, has_cgroups=True),
        Setting(Tier.B, unprivileged=True, has_cgroups=True, unix_sockets=True),
        Setting(Tier.A, Layer.NAMESPACES),
        Setting(Tier.B, unprivileged=True),
        Setting(Tier.C, unprivileged=True),
        Setting(Tier.C),
    ]


class AttackRuns:
    """Runs all settings in the background, some concurrently."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(ThreadPoolExecutor(CONCURRENCY))
        self._unprivileged = self._stack.enter_context(unprivileged_python()) if why_impossible() is None else None
        self._reports: dict[Setting, Future[SelftestReport]] = {
            each: self._pool.submit(self._run_setting, each) for each in settings()
        }

    def of(self, setting: Setting) -> SelftestReport:
        return self._reports[setting].result()

    def close(self) -> None:
        for each in self._reports.values():
            each.cancel()
        self._stack.close()

    def _run_setting(self, setting: Setting) -> SelftestReport:
        words = ["-m", "jobyard.sandbox.attacks", "--tier", setting.tier]
        # Attacks on the daemon itself do not depend on the layer that is left out.
        words += ["--without", setting.without, "--programs"] if setting.without else []
        words += ["--unix-sockets"] if setting.unix_sockets else []
        words += ["--tcp-sockets", str(setting.tcp_sockets)] if setting.tcp_sockets else []
        if not setting.unprivileged:
            return _run([sys.executable, *words], {**os.environ, "PYTHONPATH": str(ROOT / "src")})
        if self._unprivileged is None:
            return SelftestReport(state=None, refusal=why_impossible() or "")
        words = [*self._unprivileged.command, *words]
        if not setting.has_cgroups:
            return _run(words, self._unprivileged.environment)
        if not delegated_cgroups.possible():
            return SelftestReport(state=None, refusal="no cgroups to delegate")
        with delegated_cgroups.delegated() as folders:
            environment = {**self._unprivileged.environment, "TEST_CGROUPS": " ".join(folders)}
            return _run(["sh", "-c", delegated_cgroups.JOIN, "sh", *words], environment)


def _run(words: list[str], environment: dict[str, str]) -> SelftestReport:
    done = subprocess.run(words, env=environment, cwd="/", capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=SelftestReport)
