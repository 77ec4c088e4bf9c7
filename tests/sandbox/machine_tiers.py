"""Tiers that this machine supports, determined without the daemon, to detect a daemon that offers less."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess

import pytest
from tests.sandbox import delegated_cgroups
from tests.sandbox.attack_runs import Setting
from tests.sandbox.unprivileged import USER, why_impossible

from jobyard.sandbox.protocol import SandboxState, Tier

LANDLOCK_CREATE_RULESET = 444  # the same number everywhere
VERSION_FLAG = 1


@functools.cache
def best_tier() -> Tier | None:
    return next((tier for tier in Tier if offers(Setting(tier))), None)


def require_tier(state: SandboxState) -> None:
    """Skip where no program can be held; fail where the daemon offers less than the machine supports.

    A broken sandbox fails its own canaries and reports no tier, or a lower one: that must not skip its tests.
    """
    assert state.tier is best_tier(), f"this machine supports {best_tier()}: {state.reason}"
    if state.tier is None:
        pytest.skip(f"no sandbox: {state.reason}")


def offers(setting: Setting) -> bool:
    if setting.unprivileged and why_impossible() is not None:
        return False
    if setting.has_cgroups and not delegated_cgroups.possible():
        return False
    match setting.tier:
        case Tier.A:
            return os.geteuid() == 0 and not setting.unprivileged and _unshares([]) and delegated_cgroups.possible()
        case Tier.B:
            return _unshares(
                ["setpriv", "--reuid", str(USER), "--clear-groups"] if os.geteuid() == 0 else [], user=True
            )
        case Tier.C:
            libc = ctypes.CDLL(None, use_errno=True)
            return bool(libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, VERSION_FLAG) > 0)


def _unshares(before: list[str], *, user: bool = False) -> bool:
    if shutil.which("unshare") is None:
        return False
    flags = ["--user", "--map-root-user"] if user else []
    words = [*before, "unshare", *flags, "--mount", "--pid", "--net", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
