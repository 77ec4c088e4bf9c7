"""Processes and cgroups of a daemon, seen from outside."""

from __future__ import annotations

import os
from pathlib import Path


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


def process_tree(pid: int) -> list[int]:
    return [pid, *(each for child in children(pid) for each in process_tree(child))]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def zygote(daemon: int) -> int:
    """The reaper is the daemon's child, and the zygote the reaper's."""
    (reaper,) = [child for child in children(daemon) if children(child)]
    return children(reaper)[0]


def cgroups_of(pid: int) -> list[str]:
    """In all hierarchies; folders may vanish meanwhile."""
    found = []
    for folder, inner, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{folder}/{name}" for name in inner if name.startswith(f"jobyard-{pid}-")]
    return found
