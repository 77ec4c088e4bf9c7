"""Leak detection: compares the resources of an idle daemon before and after a run."""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jobyard.sandbox.attacks.connection import DaemonConnection
from jobyard.sandbox.protocol import RunRequest, SandboxState

PROC = Path("/proc")
PREFIX = "jobyard"
MARK = "jobyard-attack"  # in the name of every file that an attack tries to leave on the host
STABLE_SECONDS = 2.0  # a pool that has not changed for this long has stopped filling, full or not
SEGMENT_BYTES = 200 << 20  # the size that attacks use; other programs on the host use others
WATCHED_FOLDERS = ("/", "/etc", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - only read


@dataclass(frozen=True, slots=True)
class ResourceSnapshot:
    processes: int
    groups: int
    mounts: int
    descriptors: int
    segments: int
    files: frozenset[str]
    idle: dict[str, int]

    def differences(self, after: ResourceSnapshot) -> list[str]:
        found = []
        for name in ("processes", "groups", "mounts", "descriptors", "segments"):
            before, now = getattr(self, name), getattr(after, name)
            if now > before:
                found.append(f"{now - before} {name} left behind")
        found += [f"file left behind: {name}" for name in sorted(after.files - self.files)]
        if after.idle != self.idle:
            found.append(f"the pool changed from {self.idle} to {after.idle}")
        return found


def take_snapshot(daemon: int, state: SandboxState) -> ResourceSnapshot:
    return ResourceSnapshot(
        processes=len(descendants(daemon)),
        groups=sum(1 for _ in groups(daemon)),
        mounts=len(_lines(PROC / str(daemon) / "mountinfo")),
        descriptors=_count_entries(PROC / str(daemon) / "fd"),
        segments=_segments(),
        files=frozenset(_marked_files()),
        idle=dict(state.idle),
    )


async def warm_up(connection: DaemonConnection) -> None:
    """Run programs concurrently, so that the resources which the daemon keeps for reuse have reached their number."""
    state = await connection.fetch_state()
    names = [language.name for language in state.languages]
    hello = [RunRequest(id=0, language=name, source=b"") for name in names]
    await asyncio.gather(*(connection.run(each) for each in hello * 3))
    if "python" in names:
        hello = [RunRequest(id=0, language="python", source=b"import time\ntime.sleep(0.05)\n")]
        await asyncio.gather(*(connection.run(each) for each in hello * (2 * state.slots + 4)))


async def settled_snapshot(connection: DaemonConnection, seconds: float = 20) -> ResourceSnapshot:
    """Take a snapshot when nothing runs and the pool is full or has stopped filling."""
    began = changed = time.monotonic()
    before: ResourceSnapshot | None = None
    while True:
        state = await connection.fetch_state()
        now = take_snapshot(connection.daemon_pid, state)
        is_full = all(state.idle.get(language.name, 0) >= language.pool for language in state.languages)
        is_same = state.running == 0 and now == before
        changed = changed if is_same else time.monotonic()
        is_stable = time.monotonic() - changed > STABLE_SECONDS
        if (is_same and (is_full or is_stable)) or time.monotonic() - began > seconds:
            return now
        before = now
        await asyncio.sleep(0.03)


async def find_leaks(connection: DaemonConnection, before: ResourceSnapshot, seconds: float = 5) -> list[str]:
    """List resources that were not there before, once the daemon has had time to clean up and refill its pool."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while True:
        state = await connection.fetch_state()
        is_late = time.monotonic() > deadline
        # A look at all processes takes far longer than this question, so it waits for the daemon to be done.
        if is_late or (not state.running and state.idle == before.idle):
            found = before.differences(take_snapshot(connection.daemon_pid, state))
            if state.running:
                found.append(f"{state.running} still running")
            if not found or is_late:
                return found
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)


def descendants(daemon: int) -> list[int]:
    """Processes below the daemon or in one of its cgroups, zombies included."""
    parents: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {daemon}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    for folder in groups(daemon):
        with suppress(OSError, ValueError):
            found |= {int(line) for line in (folder / "cgroup.procs").read_text().split()}
    return sorted(found - {daemon, 0})


def groups(daemon: int) -> Iterator[Path]:
    """Cgroups of this daemon: folders below its own cgroup, named after jobyard and its pid."""
    for base in _bases(daemon):
        for top in base.glob(f"{PREFIX}-{daemon}-*"):
            yield from (Path(folder) for folder, _, _ in os.walk(top))


@functools.cache
def _bases(daemon: int) -> frozenset[Path]:
    fields = [line.split() for line in _lines(PROC / "self" / "mounts")]
    mounts = [Path(each[1]) for each in fields if each[2] in {"cgroup", "cgroup2"}]
    own = [line.split(":", 2)[2] for line in _lines(PROC / str(daemon) / "cgroup")]
    return frozenset({*mounts, *(mount / path.lstrip("/") for mount in mounts for path in own)})


def _marked_files() -> Iterator[str]:
    """Files that a program may have left on the host."""
    for folder in {tempfile.gettempdir(), *WATCHED_FOLDERS}:
        with suppress(OSError):
            yield from (str(path) for path in Path(folder).iterdir() if MARK in path.name or path.name == "core")


def _segments() -> int:
    return sum(line.split()[3] == str(SEGMENT_BYTES) for line in _lines(PROC / "sysvipc" / "shm")[1:])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _count_entries(folder: Path) -> int:
    try:
        return len(list(folder.iterdir()))
    except OSError:
        return 0
