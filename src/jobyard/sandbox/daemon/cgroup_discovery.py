"""Which control groups can be used here: version 1, 2 or both at once.

Nothing is assumed: what works is found by making a group and writing to it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from jobyard.sandbox.daemon.cgroups import CgroupManager, CgroupManagerV1, CgroupManagerV2, clear, read, write

_NEEDED = ("memory", "pids", "cpuacct", "cpu")
_PREFIX = "jobyard-"


def _own_places(pid: str = "self") -> dict[str, str]:
    """Controller to our own group's path in it; "" is version 2."""
    found: dict[str, str] = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _mounts() -> list[tuple[str, str, str, set[str]]]:
    """(root, where, kind, options) of each control group file system."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            where = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4])
            found.append((fields[3], where, kind, set(options.split(","))))
    return found


def _folder(root: str, where: str, own: str) -> str | None:
    """Our own group in the file system: a container sees only what lies below its root."""
    if root == "/":
        return (where + own).rstrip("/")
    if own == root or own.startswith(root + "/"):
        return (where + own[len(root) :]).rstrip("/")
    return where if own == "/" else None


def _bases() -> tuple[dict[str, str], str | None]:
    own = _own_places()
    first: dict[str, str] = {}
    second: str | None = None
    for root, where, kind, options in _mounts():
        if kind == "cgroup2":
            second = _folder(root, where, own.get("", "/"))
            continue
        for controller in _NEEDED:
            if controller in options and controller in own and (runtime := _folder(root, where, own[controller])):
                first[controller] = runtime
    return first, second


def find() -> tuple[CgroupManager | None, str]:
    """The groups that can be used here, or None and why not."""
    first, second = _bases()
    name = f"{_PREFIX}{os.getpid()}-{started(os.getpid())}"
    reasons = []
    if second is not None:
        try:
            return _find_v2(second, name), ""
        except OSError as error:
            reasons.append(f"version 2: {error.strerror or error} ({error.filename or second})")
    missing = [controller for controller in _NEEDED if controller not in first]
    if missing:
        reasons.append(f"version 1: no {', '.join(missing)}")
        return None, "; ".join(reasons)
    try:
        sweep(first.values())
        groups = CgroupManagerV1(first, name)
        _try(groups)
    except OSError as error:
        reasons.append(f"version 1: {error.strerror or error} ({error.filename or ''})")
        return None, "; ".join(reasons)
    return groups, ""


def _find_v2(base: str, name: str) -> CgroupManager:
    offered = set(read(f"{base}/cgroup.controllers").decode().split())
    missing = {"memory", "pids", "cpu"} - offered
    if missing:
        raise OSError(0, f"no {', '.join(sorted(missing))}", base)
    sweep([base])
    enabled = set(read(f"{base}/cgroup.subtree_control").decode().split())
    if not {"memory", "pids", "cpu"} <= enabled:
        _step_aside(base)
        write(f"{base}/cgroup.subtree_control", "+memory +pids +cpu")
    groups = CgroupManagerV2(base, name)
    _try(groups)
    return groups


def _step_aside(base: str) -> None:
    """A group of version 2 that has children with limits holds no processes itself: go into a child."""
    leaf = f"{base}/supervisor"
    Path(leaf).mkdir(exist_ok=True)
    for pid in read(f"{base}/cgroup.procs").split():
        write(f"{leaf}/cgroup.procs", pid.decode())


def _try(groups: CgroupManager) -> None:
    group = groups.make(0)
    try:
        group.limit(64 << 20, 16)
        group.joins()
        group.forget_peak()
        group.start()
        group.cpu_ns(), group.peak_bytes(), group.oom_kills()
        if not group.is_empty():
            raise OSError(0, "a new group is not empty")
    except BaseException:
        group.remove()
        groups.close()
        raise
    group.remove()


def started(pid: int) -> str:
    """When the process began: a number that a later process of the same pid does not share."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def sweep(bases: Iterable[str]) -> None:
    """What a supervisor left that was killed together with its keeper."""
    for base in set(bases):
        for entry in Path(base).glob(f"{_PREFIX}*-*"):
            _, pid, began = entry.name.split("-", 2)
            with contextlib.suppress(OSError, ValueError):
                if started(int(pid)) == began:
                    continue
            clear([str(entry)])
