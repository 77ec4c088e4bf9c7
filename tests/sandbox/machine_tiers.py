"""Tiers that this machine supports, determined without the daemon, to detect a daemon that offers less."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess

from tests.sandbox import delegated_cgroups
from tests.sandbox.attack_runs import Setting
from tests.sandbox.unprivileged import USER, why_impossible

from jobyard.sandbox.protocol import Tier

LANDLOCK_CREATE_RULESET = 444  # the same number everywhere
VERSION_FLAG = 1


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
