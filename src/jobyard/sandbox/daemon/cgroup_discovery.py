"""Discovery of usable cgroups: version 1, 2 or hybrid.

Nothing is assumed: a cgroup is created and written to before its kind is used.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from jobyard.sandbox.daemon.cgroups import CgroupManager, CgroupManagerV1, CgroupManagerV2, read, remove_tree, write

_NEEDED = ("memory", "pids", "cpuacct", "cpu")
_PREFIX = "jobyard-"


def _own_paths(pid: str = "self") -> dict[str, str]:
    """Map each controller to the cgroup of this process; "" stands for version 2."""
    found: dict[str, str] = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _mounts() -> list[tuple[str, str, str, set[str]]]:
    """List (root, mount point, type, options) of each cgroup file system."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            where = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4])
            found.append((fields[3], where, kind, set(options.split(","))))
    return found


def _folder(root: str, where: str, own: str) -> str | None:
    """Locate this process's cgroup in the file system; a container sees only what is below its root."""
    if root == "/":
        return (where + own).rstrip("/")
    if own == root or own.startswith(root + "/"):
        return (where + own[len(root) :]).rstrip("/")
    return where if own == "/" else None


def _bases() -> tuple[dict[str, str], str | None]:
    own = _own_paths()
    v1: dict[str, str] = {}
    v2: str | None = None
    for root, where, kind, options in _mounts():
        if kind == "cgroup2":
            v2 = _folder(root, where, own.get("", "/"))
            continue
        for controller in _NEEDED:
            if controller in options and controller in own and (folder := _folder(root, where, own[controller])):
                v1[controller] = folder
    return v1, v2


def find() -> tuple[CgroupManager | None, str]:
    """Return a manager of usable cgroups, or None and the reason why there are none."""
    v1, v2 = _bases()
    name = f"{_PREFIX}{os.getpid()}-{start_time(os.getpid())}"
    reasons = []
    if v2 is not None:
        try:
            return _find_v2(v2, name), ""
        except OSError as error:
            reasons.append(f"version 2: {error.strerror or error} ({error.filename or v2})")
    missing = [controller for controller in _NEEDED if controller not in v1]
    if missing:
        reasons.append(f"version 1: no {', '.join(missing)}")
        return None, "; ".join(reasons)
    try:
        sweep(v1.values())
        groups = CgroupManagerV1(v1, name)
        _check(groups)
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
        _move_processes_to_leaf(base)
        write(f"{base}/cgroup.subtree_control", "+memory +pids +cpu")
    groups = CgroupManagerV2(base, name)
    _check(groups)
    return groups


def _move_processes_to_leaf(base: str) -> None:
    """Move all processes into a child: a version 2 cgroup with limited children must not hold processes itself."""
    leaf = f"{base}/supervisor"
    Path(leaf).mkdir(exist_ok=True)
    for pid in read(f"{base}/cgroup.procs").split():
        write(f"{leaf}/cgroup.procs", pid.decode())


def _check(groups: CgroupManager) -> None:
    group = groups.make(0)
    try:
        group.limit(64 << 20, 16)
        group.join_descriptors()
        group.reset_peak()
        group.start()
        group.cpu_ns(), group.peak_bytes(), group.oom_kills()
        if not group.is_empty():
            raise OSError(0, "a new cgroup is not empty")
    except BaseException:
        group.remove()
        groups.close()
        raise
    group.remove()


def start_time(pid: int) -> str:
    """Start time of a process; together with the pid it identifies a process for good."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def sweep(bases: Iterable[str]) -> None:
    """Remove cgroups of daemons that were killed together with their reaper."""
    for base in set(bases):
        for entry in Path(base).glob(f"{_PREFIX}*-*"):
            _, pid, started = entry.name.split("-", 2)
            with contextlib.suppress(OSError, ValueError):
                if start_time(int(pid)) == started:
                    continue
            remove_tree([str(entry)])
