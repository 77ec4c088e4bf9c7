"""Checks that this machine can run runners as processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jobyard.domain.runners.cluster import ProcessCluster
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.process.folder import Account
from jobyard.ports.store import Finding, Level


def check_machine(name: str, cluster: ProcessCluster, profiles: Sequence[RunnerProfile]) -> list[Finding]:
    check = f"cluster {name}"
    findings = [
        *_check_runner(check, Path(cluster.runner_folder)),
        *_check_user(check, cluster.user),
        *_check_work_folder(check, Path(cluster.work_folder)),
    ]
    if not Path("/proc/self/stat").exists():
        findings.append(Finding(Level.FAIL, check, "/proc is missing", "run the manager on Linux"))
    findings += [
        Finding(
            Level.FAIL,
            f"profile {profile.name}, {check}",
            f"warm is {profile.warm}, but backend process has no warm runners",
            "set warm: 0 or use a Kubernetes cluster",
        )
        for profile in profiles
        if profile.warm
    ]
    return findings or [Finding(Level.OK, check, f"runners can be started from {cluster.runner_folder}")]


def _check_runner(check: str, folder: Path) -> list[Finding]:
    program = folder / "run.sh"
    if not program.is_file():
        advice = "unpack a release of actions/runner there"
        return [Finding(Level.FAIL, check, f"{program} does not exist", advice)]
    if not os.access(program, os.X_OK):
        return [Finding(Level.FAIL, check, f"{program} is not executable", f"chmod +x {program}")]
    return []


def _check_user(check: str, user: str | None) -> list[Finding]:
    try:
        account = Account.named(user)
    except KeyError:
        return [Finding(Level.FAIL, check, f"the user {user} does not exist", f"useradd --create-home {user}")]
    if account.uid == 0:
        return [Finding(Level.FAIL, check, "the runner refuses to run as root", "set user of the cluster")]
    if account.is_other and os.getuid() != 0:
        message = f"only root can start runners as {account.name}"
        return [Finding(Level.FAIL, check, message, f"run the manager as root or as {account.name}")]
    return []


def _check_work_folder(check: str, folder: Path) -> list[Finding]:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return [
            Finding(Level.FAIL, check, f"the manager cannot write to {existing}", "change work_folder or its owner")
        ]
    return []
