"""Every attack in every tier that this machine offers, each layer also alone: played once, looked at by many tests."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec
from tests.sandbox import delegated_cgroups
from tests.sandbox.unprivileged import ordinary, possible
from tests.support import ROOT

from jobyard.sandbox.attacks.__main__ import SelftestReport
from jobyard.sandbox.attacks.attack import Layer
from jobyard.sandbox.protocol import Tier

AT_ONCE = 3  # they mostly wait
LONGEST_SECONDS = 240


@dataclass(frozen=True, slots=True)
class Setting:
    tier: Tier
    without: Layer | None = None
    as_ordinary: bool = False
    has_groups: bool = False  # control groups handed over to this user

    def __str__(self) -> str:
        who = "ordinary" if self.as_ordinary or os.geteuid() != 0 else "root"
        return (
            f"{who}-{self.tier}"
            + ("-with-groups" if self.has_groups else "")
            + (f"-without-{self.without}" if self.without else "")
        )


def settings() -> list[Setting]:
    """The slowest first. An ordinary user has no tier A; without groups, tier B cannot do without either layer."""
    if os.geteuid() != 0:
        return [Setting(Tier.B), Setting(Tier.C)]
    return [
        Setting(Tier.A),
        Setting(Tier.A, Layer.SECCOMP),
        Setting(Tier.B, as_ordinary=True, has_groups=True),
        Setting(Tier.A, Layer.NAMESPACES),
        Setting(Tier.B, as_ordinary=True),
        Setting(Tier.C, as_ordinary=True),
        Setting(Tier.C),
    ]


class Playing:
    """All settings, some at once, from the moment when this is made."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        self._ordinary = self._stack.enter_context(ordinary()) if possible() is None else None
        self._played: dict[Setting, Future[SelftestReport]] = {
            each: self._pool.submit(self._play, each) for each in settings()
        }

    def of(self, setting: Setting) -> SelftestReport:
        return self._played[setting].result()

    def close(self) -> None:
        for each in self._played.values():
            each.cancel()
        self._stack.close()

    def _play(self, setting: Setting) -> SelftestReport:
        words = ["-m", "jobyard.sandbox.attacks", "--tier", setting.tier]
        # What is done to the daemon itself has nothing to do with the layer that is left out.
        words += ["--without", setting.without, "--programs"] if setting.without else []
        if not setting.as_ordinary:
            return _run([sys.executable, *words], {**os.environ, "PYTHONPATH": str(ROOT / "src")})
        if self._ordinary is None:
            return SelftestReport(state=None, refusal=possible() or "")
        words = [*self._ordinary.command, *words]
        if not setting.has_groups:
            return _run(words, self._ordinary.environment)
        if not delegated_cgroups.possible():
            return SelftestReport(state=None, refusal="no control groups to hand over")
        with delegated_cgroups.delegated() as folders:
            environment = {**self._ordinary.environment, "GROUPS_OF_TESTS": " ".join(folders)}
            return _run(["sh", "-c", delegated_cgroups.JOIN, "sh", *words], environment)


def _run(words: list[str], environment: dict[str, str]) -> SelftestReport:
    done = subprocess.run(words, env=environment, cwd="/", capture_output=True, timeout=LONGEST_SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=SelftestReport)
