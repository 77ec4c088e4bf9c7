"""Processes of a runner, read from /proc: found again after a restart of the manager, and ended with all children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

# In the environment of each process of a runner, so that those which left its session are found too.
MARKER = "JOBYARD_RUNNER_UID"
POLL_SECONDS = 0.05


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process, also when its number is used again: by its start time and the boot of the machine."""

    pid: int
    started: int  # in clock ticks since the boot
    boot: str


class ProcessStatus(NamedTuple):
    state: str
    parent: int
    session: int
    started: int

    @property
    def is_alive(self) -> bool:
        return self.state not in {"Z", "X"}


def read_status(pid: int) -> ProcessStatus | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    return ProcessStatus(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()


def identify(pid: int) -> ProcessIdentity | None:
    found = read_status(pid)
    return ProcessIdentity(pid, found.started, boot_id()) if found else None


def is_alive(process: ProcessIdentity) -> bool:
    if process.boot != boot_id():
        return False
    found = read_status(process.pid)
    return found is not None and found.started == process.started and found.is_alive


def has_marker(pid: int, uid: str) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{MARKER}={uid}".encode() in variables


def members(process: ProcessIdentity, uid: str) -> set[int]:
    """The processes of the runner: its session, its descendants, and those with its marker."""
    if process.boot != boot_id():
        return set()
    found = {pid: status for pid, status in _all() if status.is_alive and pid != os.getpid()}
    leader = found.get(process.pid) or read_status(process.pid)
    # If another process has the number, the session of that number is not the runner's.
    is_own = leader is None or leader.started == process.started
    chosen = {pid for pid, status in found.items() if is_own and status.session == process.pid}
    chosen |= {process.pid} & found.keys() if is_own else set()
    while True:
        children = {pid for pid, status in found.items() if status.parent in chosen} - chosen
        if not children:
            break
        chosen |= children
    return chosen | {pid for pid in found.keys() - chosen if has_marker(pid, uid)}


def _all() -> Iterator[tuple[int, ProcessStatus]]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 - often, and names are all that is needed
        if entry.isdigit() and (status := read_status(int(entry))) is not None:
            yield int(entry), status


async def terminate(process: ProcessIdentity, uid: str, grace_seconds: float, force: asyncio.Event) -> None:
    """SIGTERM to all processes of the runner, then SIGKILL after the grace or once `force` is set, until none is left.

    A process that the kernel cannot end, such as one that waits for a lost disk, keeps this waiting.
    """
    if not force.is_set() and _signal(members(process, uid), signal.SIGTERM):
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_seconds
        while members(process, uid) and loop.time() < deadline and not force.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(force.wait(), POLL_SECONDS)
            reap(process.pid)
    while _signal(members(process, uid), signal.SIGKILL):
        await asyncio.sleep(POLL_SECONDS)
        reap(process.pid)


def _signal(pids: set[int], number: signal.Signals) -> bool:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(pids)


def reap(pid: int) -> int | None:
    """The exit status of a child that has ended, negative for a signal; None if it runs or is not a child."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if found else None
