"""A machine with a runner program that does what a test says, and launchers for it."""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import eventually

from jobyard.domain.runners.cluster import ProcessCluster
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.api import JitConfig
from jobyard.github.launcher import Instance, LaunchRequest, Phase
from jobyard.github.process import launcher as launcher_module
from jobyard.github.process.folder import RunnerFolder
from jobyard.github.process.launcher import ProcessLauncher

LINUX = RunnerProfile(name="linux", labels=("code-linux",), cluster="here")
# What the runner program does is the content of `act` in its folder.
RUN = """#!/bin/sh
echo "started as $(id -un) in $PWD"
. ./act
"""
STUBBORN = "trap 'echo refused' TERM; echo ready; while :; do sleep 0.05; done"
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_module, "OBSERVE_SECONDS", 0.02)


class Machine:
    def __init__(self, folder: Path) -> None:
        self.source, self.work = folder / "actions-runner", folder / "runners"
        (self.source / "bin").mkdir(parents=True)
        (self.source / "bin" / "tool").write_text("original")
        (self.source / "bin" / "link").symlink_to("tool")
        (self.source / "_work").mkdir()
        (self.source / ".credentials").write_text("of another runner")
        (self.source / "run.sh").write_text(RUN)
        (self.source / "run.sh").chmod(0o755)
        self.acts("exec sleep 1000")
        self.changes: list[Instance] = []
        self.launchers: list[ProcessLauncher] = []
        self.launcher = self.make()

    def acts(self, script: str) -> None:
        (self.source / "act").write_text(textwrap.dedent(script))

    def cluster(self, **more: Any) -> ProcessCluster:
        options: dict[str, Any] = {
            "runner_folder": str(self.source),
            "work_folder": str(self.work),
            "stop_grace": 5.0,
        } | more
        return ProcessCluster(**options)

    def make(self, instance: str = "blue", **more: Any) -> ProcessLauncher:
        self.launchers.append(ProcessLauncher("here", self.cluster(**more), instance=instance))
        return self.launchers[-1]

    async def launch(self, name: str = "r1") -> Instance:
        return await self.launcher.launch(request(name))

    def named(self, name: str) -> Instance | None:
        return next((each for each in self.launcher.instances() or () if each.name == name), None)

    async def in_phase(self, name: str, phase: Phase) -> Instance:
        found = await eventually(lambda: (each := self.named(name)) and each.phase is phase and each)
        assert isinstance(found, Instance)
        return found

    async def gone(self, name: str) -> None:
        await eventually(lambda: self.launcher.instances() is not None and self.named(name) is None)
        assert not (self.work / name).exists()

    async def log(self, name: str, text: str) -> str:
        path = self.work / name / "log"
        await eventually(lambda: path.exists() and text in path.read_text())
        return path.read_text()

    def pid(self, name: str) -> int:
        """The process that the manager started; it records this before `launch` returns."""
        record = RunnerFolder(self.work / name).load()
        assert record is not None
        assert record.process is not None
        return record.process.pid

    async def own_pid(self, name: str) -> int:
        """The same as the process writes it itself, a moment after its start."""
        process = await eventually(RunnerFolder(self.work / name).recorded_process, 30)
        return int(process.pid)


def request(name: str, **more: Any) -> LaunchRequest:
    jit = JitConfig(runner_id=77, name=name, encoded="c2VjcmV0")
    facts: dict[str, Any] = {"org_name": "acme", "ticket_id": "t1", "jit": jit, "requested_job_id": 12} | more
    return LaunchRequest(name=name, profile=LINUX, **facts)


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    made = Machine(tmp_path)
    await made.launcher.start(made.changes.append)
    yield made
    if made.launcher.instances() is None:
        await made.launcher.start(made.changes.append)
    for instance in made.launcher.instances() or ():
        await made.launcher.remove(instance, force=True)
    await eventually(lambda: made.launcher.instances() == [])
    for launcher in made.launchers:
        await launcher.stop()
